"""Helpers of the experts of unit attention_and_experts: refusals, and the capacity of an expert."""

from handson.errors import TrackError


def check_experts(experts, ranks):
    """Refuse experts that cannot be divided among `ranks` ranks. Raises TrackError."""
    if experts % ranks:
        raise TrackError(
            f"{experts} experts cannot be divided among {ranks} ranks: take a multiple of {ranks} as --experts", True
        )


def capacity_of(tokens, experts, factor):
    """Return how many of a rank's `tokens` an expert accepts: `factor` times an equal share. Raises TrackError if that
    is less than one."""
    capacity = int(factor * tokens / experts)
    if capacity < 1:
        raise TrackError(
            f"{tokens} tokens, {experts} experts and a capacity factor of {factor:g} give each expert a capacity of 0"
            f" tokens: take {experts / tokens:.3g} or more as --capacity-factor",
            True,
        )
    return capacity
