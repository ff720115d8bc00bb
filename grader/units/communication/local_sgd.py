"""The checks of local_sgd.py: the parameters after each block, against a simulation of the definition in one
process."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBE, ORACLE = (
    "grader.units.communication.probes.probe_local_sgd:blocks",
    "grader.units.communication.oracles.oracle_local_sgd:blocks",
)
TOLERANCE = 1e-6
MORE = 4  # numbers that may travel beside the parameters, such as a count of the ranks


def as_simulated(seen, case, expected):
    found, right = [numpy.stack(of_rank["blocks"]) for of_rank in seen], expected["right"]
    problem = criteria.explained_by(found, expected, TOLERANCE)
    wrong = [
        (block, rank)
        for block in range(case["blocks"])
        for rank in range(len(found))
        if not criteria.close(found[rank][block], right[rank][block], TOLERANCE)
    ]
    if problem is None or problem or not wrong:
        return problem or None
    block, rank = wrong[0]
    made = _made_of(found[rank][block], block, rank, seen, case, expected)
    if made:
        return f"after block {block + 1}, {made}"
    off = numpy.abs(found[rank][block] - right[rank][block]).max()
    return f"after block {block + 1}, the parameters of rank {rank} are not those of the definition (off by {off:.2g})"


def _made_of(found, block, rank, seen, case, expected):
    """What the first wrong parameters of a rank consist of, in words; None if of nothing that is known."""
    everybodys = [of_rank["mine"][block] for of_rank in seen]
    if case["gap"] == "mean":
        if times := criteria.shares(found, everybodys):
            return (
                f"`mean` of rank {rank} has {criteria.words_of_shares(times, rank)}; it should have those of all ranks,"
                f" each 1/{len(seen)} times"
            )
        return None
    starts = [expected["start"], *expected["right"][rank]]
    parts = {"`mean`": numpy.mean(everybodys, axis=0), "the start before": starts[block]}
    if block:
        parts["the velocity before"] = numpy.subtract(starts[block], starts[block - 1])
    due = f"the start before + block.velocity = {criteria.sum_of(expected['right'][rank][block], parts)}"
    made = criteria.sum_of(found, parts)
    return made and f"block.start of rank {rank} is {made}; it should be {due}"


def one_message(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        for number, sent in enumerate(of_rank["sent"]):
            size = 8 * len(of_rank["blocks"][0])
            one = [name for name, _ in sent] == ["allreduce"] and size <= sent[0][1] <= size + 8 * MORE
            if not one and (sent or len(seen) > 1):  # one rank alone needs none
                shown = ", ".join(f"{name} of {bytes_sent} bytes" for name, bytes_sent in sent) or "nothing"
                return f"in block {number + 1} rank {rank} hands over {shown}; one all-reduce of {size} bytes does it"
    return None


def _observed(case):
    numbers = (Array((None,)),) * case["blocks"]
    return {"mine": numbers, "blocks": numbers, "sent": ([(str, int)],) * case["blocks"]}


MEAN = "the mean of all ranks' parameters"
CHECKS = (
    Check(
        "mean",
        PROBE,
        ({"gap": "mean", "ranks": 2, "period": 3, "momentum": 0.0, "blocks": 2},),
        (
            Criterion(
                "mean_parameters",
                MEAN,
                2,
                as_simulated,
                "Divide by the number of ranks, then dist.all_reduce: it adds up in place.",
            ),
            Criterion(
                "one_all_reduce_per_block",
                "one all-reduce in each block",
                1,
                one_message,
                "dist.all_reduce(mean), once.",
                needs="mean_parameters",
            ),
        ),
        ORACLE,
        observed=_observed,
    ),
    Check(
        "block_momentum",
        PROBE,
        ({"gap": "block_momentum", "ranks": 2, "period": 3, "momentum": 0.4, "blocks": 4},),
        (
            Criterion(
                "block_momentum",
                "blocks with momentum",
                3,
                as_simulated,
                "velocity = momentum * velocity + (mean - start); start = start + velocity.",
            ),
        ),
        ORACLE,
        observed=_observed,
    ),
)
