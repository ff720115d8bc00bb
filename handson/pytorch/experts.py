"""The parts of experts.py (unit attention_and_experts) that are not its lesson: errors, and the capacity of an
expert."""

from handson.errors import TrackError
from handson.words import counted


def check_experts(experts, ranks):
    """Raise TrackError if the experts cannot be split among `ranks` ranks."""
    if experts % ranks:
        raise TrackError(
            f"{experts} experts cannot be split among {ranks} ranks: set --experts to a multiple of {ranks}", True
        )


def capacity_of(tokens, experts, factor):
    """Return how many of a rank's `tokens` an expert accepts: `factor` times an equal share. Raises TrackError if the
    capacity is 0."""
    capacity = int(factor * tokens / experts)
    if capacity < 1:
        raise TrackError(
            f"{counted(tokens, 'token')}, {experts} experts and a capacity factor of {factor:g} give each expert a"
            f" capacity of 0 tokens: set --capacity-factor to {experts / tokens:.3g} or more",
            True,
        )
    return capacity
