"""The checks of local_sgd.py: the parameters after each block are compared with a simulation in one process."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBE, ORACLE = (
    "grader.units.communication.probes.probe_local_sgd:blocks",
    "grader.units.communication.oracles.oracle_local_sgd:blocks",
)
TOLERANCE = 1e-6
MORE = 4  # additional numbers that may be sent with the parameters, such as a count of the ranks


def as_simulated(seen, case, expected):
    found, right = [numpy.stack(of_rank["blocks"]) for of_rank in seen], expected["right"]
    problem = criteria.explained_by(found, expected, TOLERANCE)
    if problem is not None and case["gap"] == "block_momentum" and (first := _first_wrong(seen, case, expected)):
        return first
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
    return f"after block {block + 1}, the parameters of rank {rank} differ from the right ones by {off:.2g}"


def _first_wrong(seen, case, expected):
    """Return what is wrong with block.velocity or block.start in the first block in which one of them does not follow
    from the values before it, or "" if the reason is unknown."""
    momentum = case["momentum"]
    for rank, of_rank in enumerate(seen):
        start, old = expected["start"], numpy.zeros_like(expected["start"])
        for block in range(case["blocks"]):
            step = numpy.mean([other["mine"][block] for other in seen], axis=0) - start
            velocity, next_start = of_rank["velocities"][block], of_rank["blocks"][block]
            said = criteria.explained(
                velocity,
                momentum * old + step,
                {
                    "block.velocity does not change: store the new velocity in it": old,
                    "the step has the wrong sign in block.velocity: the step is `mean` minus block.start": (
                        momentum * old - step
                    ),
                    "block.velocity is the step alone: add block.momentum times the old velocity": step,
                },
                TOLERANCE,
            )
            if said is None:
                said = criteria.explained(
                    next_start,
                    start + velocity,
                    {
                        "block.start does not change: add block.velocity to it": start,
                        "block.velocity is subtracted from block.start: add it": start - velocity,
                        "the step alone is added to block.start: add block.velocity": start + step,
                        "block.velocity is added to `mean`: add it to the old block.start": start + step + velocity,
                    },
                    TOLERANCE,
                )
            if said is not None:
                return said and f"after block {block + 1}, {said}"
            start, old = next_start, velocity
    return ""


def _made_of(found, block, rank, seen, case, expected):
    """Return the sum that makes up the first wrong parameters of a rank, in words, or None if it is unknown."""
    everybodys = [of_rank["mine"][block] for of_rank in seen]
    if case["gap"] == "mean":
        if times := criteria.shares(found, everybodys):
            return (
                f"`mean` of rank {rank} has {criteria.words_of_shares(times, rank)}; it should have the numbers of"
                f" every rank 1/{len(seen)} times"
            )
        return None
    starts = [expected["start"], *expected["right"][rank]]
    parts = {"`mean`": numpy.mean(everybodys, axis=0), "the previous start": starts[block]}
    if block:
        parts["the previous velocity"] = numpy.subtract(starts[block], starts[block - 1])
    due = f"the previous start + block.velocity = {criteria.sum_of(expected['right'][rank][block], parts)}"
    made = criteria.sum_of(found, parts)
    return made and f"block.start of rank {rank} is {made}; it should be {due}"


def one_message(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        for number, sent in enumerate(of_rank["sent"]):
            size = 8 * len(of_rank["blocks"][0])
            one = [name for name, _ in sent] == ["allreduce"] and size <= sent[0][1] <= size + 8 * MORE
            if not one and (sent or len(seen) > 1):  # a single rank needs no all-reduce
                shown = ", ".join(f"{name} with {bytes_sent} bytes" for name, bytes_sent in sent) or "no collective"
                return f"in block {number + 1}, rank {rank} calls {shown}; one all-reduce of {size} bytes is enough"
    return None


def _observed(case):
    numbers = (Array((None,)),) * case["blocks"]
    return {"mine": numbers, "blocks": numbers, "velocities": numbers, "sent": ([(str, int)],) * case["blocks"]}


MEAN = "`mean` is the mean of all ranks' parameters"
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
                "Divide by the number of ranks, then call dist.all_reduce, which adds up in place.",
            ),
            Criterion(
                "one_all_reduce_per_block",
                "each block ends with one all-reduce",
                1,
                one_message,
                "Call dist.all_reduce(mean) once.",
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
                "block.start and block.velocity follow block momentum",
                3,
                as_simulated,
                "velocity = momentum * velocity + (mean - start); start = start + velocity.",
            ),
        ),
        ORACLE,
        observed=_observed,
    ),
)
