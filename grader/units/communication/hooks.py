"""The checks of hooks.py: each hook against a simulation of its definition."""

import numpy

from grader.checks import criteria, sgd
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

# tolerances: of gradients that travel as they are, and as a short type, with sums in it
EXACT, SHORT = 1e-5, {"float16": 2e-3, "bfloat16": 2e-2}
PROBE, ORACLE = (
    "grader.units.communication.probes.probe_hooks:hook",
    "grader.units.communication.oracles.oracle_communication_pytorch:hook",
)


def as_simulated(what):
    """A judge: the gradients after backward are those of the simulation, in each step and on each rank."""

    def judge(seen, case, expected):
        right, tolerance = expected["right"], SHORT.get(case.get("dtype"), EXACT)
        for rank, of_rank in enumerate(seen):
            found = numpy.asarray(of_rank["steps"])
            if criteria.close(found, right, tolerance):
                continue
            if of_rank["misused"]:
                return of_rank["misused"]
            for sentence, values in expected.items():
                of_this_rank = values[rank] if values.ndim > right.ndim else values
                if (
                    sentence != "right"
                    and not criteria.close(of_this_rank, right, tolerance)
                    and criteria.close(found, of_this_rank, tolerance)
                ):
                    return sentence
            if not numpy.isfinite(found).all():
                return f"on rank {rank} gradients are infinite or NaN{_overflow(case)}"
            step = next(step for step in range(len(right)) if not criteria.close(found[step], right[step], tolerance))
            number = int(numpy.abs(found[step] - right[step]).argmax())
            shown, due = criteria.distinct_digits(found[step][number], right[step][number])
            times = sgd.ratio(found.ravel(), right.ravel(), tolerance)
            why = (
                f"all are {criteria.distinct_digits(times, 1, 3)[0]} times as large as they should be" if times else ""
            )
            return criteria.with_reason(
                f"on rank {rank}, in step {step + 1}, {what} of gradient {number} is {shown}; it should be {due}", why
            )
        return None

    return judge


def _overflow(case):
    overflows = {
        "float16": ": float16 ends at 65,504, and the sum over the ranks is larger; divide before you convert",
        "bfloat16": ": `dtype` is bfloat16 here, in which they would be finite; float16 ends at 65,504",
    }
    return overflows.get(case.get("dtype"), "")


def observed(case):
    steps = case["steps"]
    return {
        "steps": (Array((sum(case["lengths"]),)),) * steps,
        "sent": ([(str, int)],) * steps,
        "waited": (bool,) * steps,
        "forgotten": bool,
        "misused": str,
    }


def only_its_message(what):
    """A judge as `as_simulated`; a hook sends nothing but the one message for each bucket that the script's own lines
    send."""

    def judge(seen, case, expected):
        for rank, of_rank in enumerate(seen):
            for number, sent in enumerate(of_rank["sent"]):
                if len(sent) > len(case["lengths"]):
                    return (
                        f"in step {number + 1} rank {rank} sends {len(sent)} messages for {len(case['lengths'])}"
                        " buckets: `gather` below sends what is needed"
                    )
        return as_simulated(what)(seen, case, expected)

    return judge


def as_many_as_count(seen, case, expected):
    """A judge of top_k: in each step a rank sends `count` values, of 4 bytes, and as many places, of 4 bytes."""
    right = sorted(8 * max(1, round(case["share"] * length)) for length in case["lengths"])
    for rank, of_rank in enumerate(seen):
        for number, sent in enumerate(of_rank["sent"]):
            for found, needed in zip(sorted(size for _, size in sent), right):
                if found != needed:
                    both = f"{needed // 8} values and their places (`count`) have {needed}"
                    return (
                        f"in step {number + 1} rank {rank} sends {found} bytes; {both}: no more of them where several"
                        " are equal, and no fewer where some are 0"
                    )
    return None


def a_bit_for_each(seen, case, expected):
    """A judge of one_bit: in each step a rank sends a bit for each gradient, in whole bytes, and `scale`, of 8 bytes at
    most."""
    lengths = sorted(case["lengths"])
    for rank, of_rank in enumerate(seen):
        for number, sent in enumerate(of_rank["sent"]):
            for found, length in zip(sorted(size for _, size in sent), lengths):
                if found > (bits := -(-length // 8)) + 8:
                    needed = (
                        f"`positive` has {bits} byte{'s' * (bits > 1)}, with a bit for each gradient, and `scale`, a"
                        " single number, has 4"
                    )
                    return f"in step {number + 1} rank {rank} sends {found} bytes for {length} gradients; {needed}"
    return None


ONE_BIT = Criterion(
    "one_bit_error_feedback",
    "signs, with error feedback",
    3,
    lambda *all: only_its_message("the mean of the signs")(*all) or a_bit_for_each(*all),
    "owed = gradients + residual; residual = owed - what is sent.",
)
TOP_K = Criterion(
    "top_k_error_feedback",
    "the largest, with error feedback",
    3,
    lambda *all: only_its_message("the mean of what was sent")(*all) or as_many_as_count(*all),
    "The residual is `owed`, with 0 where a value was sent.",
)
CHECKS = (
    Check(
        "one_bit",
        PROBE,
        (
            {"function": "one_bit", "ranks": 2, "lengths": [6, 11], "steps": 4, "zeros": True},
            {"function": "one_bit", "ranks": 2, "lengths": [5, 5, 3], "steps": 3},
        ),
        (ONE_BIT,),
        ORACLE,
        observed=observed,
    ),
    Check(
        "top_k",
        PROBE,
        ({"function": "top_k", "ranks": 2, "lengths": [12, 20], "steps": 4, "share": 0.25, "few": 2},),
        (TOP_K,),
        ORACLE,
        observed=observed,
    ),
)
