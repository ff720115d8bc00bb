"""The checks of hooks.py: each hook is compared with a simulation of its definition."""

import numpy

from grader.checks import criteria, sgd
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

# tolerances: of float32 gradients, and of gradients that are sent and summed in a shorter type
EXACT, SHORT = 1e-5, {"float16": 2e-3, "bfloat16": 2e-2}
LOST = "the residual of the previous step is lost: add it to the gradients"
PROBE, ORACLE = (
    "grader.units.communication.probes.probe_hooks:hook",
    "grader.units.communication.oracles.oracle_communication_pytorch:hook",
)


def as_simulated(what):
    """Return a judge: the gradients after backward equal those of the simulation, in each step and on each rank."""

    def judge(seen, case, expected):
        right, tolerance = expected["right"], SHORT.get(case.get("dtype"), EXACT)
        for rank, of_rank in enumerate(seen):
            found = numpy.asarray(of_rank["steps"])
            if criteria.close(found, right, tolerance):
                continue
            if of_rank["misused"]:
                return of_rank["misused"]
            said = []
            for sentence, values in expected.items():
                of_this_rank = values[rank] if values.ndim > right.ndim else values
                if (
                    sentence != "right"
                    and not criteria.close(of_this_rank, right, tolerance)
                    and criteria.close(found, of_this_rank, tolerance)
                ):
                    said.append(sentence)
            if said:  # a residual that is read is not lost, even if it has no effect on the values that are sent
                return said[said[0] == LOST and len(said) > 1 and of_rank["read"]]
            if not numpy.isfinite(found).all():
                return f"on rank {rank}, gradients are infinite or NaN{_overflow(case)}"
            step = next(step for step in range(len(right)) if not criteria.close(found[step], right[step], tolerance))
            number = int(numpy.abs(found[step] - right[step]).argmax())
            shown, due = criteria.distinct_digits(found[step][number], right[step][number])
            times = sgd.ratio(found.ravel(), right.ravel(), tolerance)
            why = criteria.as_large(times) if times else ""
            return criteria.with_reason(
                f"on rank {rank}, in step {step + 1}, {what} of gradient {number} is {shown}; it should be {due}", why
            )
        return None

    return judge


def _overflow(case):
    overflows = {
        "float16": ": the largest float16 is 65,504, and the sum over the ranks is larger; divide before you convert",
        "bfloat16": ": `dtype` is bfloat16 here, which can hold them; the largest float16 is 65,504",
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
        "read": bool,
        "types": [str],
    }


def only_its_message(what):
    """Return a judge like `as_simulated`, which also requires that a hook sends only the one message per bucket that
    the script's own lines send."""

    def judge(seen, case, expected):
        for rank, of_rank in enumerate(seen):
            for number, sent in enumerate(of_rank["sent"]):
                if len(sent) > len(case["lengths"]):
                    return (
                        f"in step {number + 1}, rank {rank} sends {len(sent)} messages for {len(case['lengths'])}"
                        " buckets: the lines below your code send everything with `gather`"
                    )
        return as_simulated(what)(seen, case, expected)

    return judge


def as_many_as_count(seen, case, expected):
    """Judge that in each step of top_k, a rank sends `count` values of 4 bytes, and `count` indices of 4 bytes."""
    right = sorted(8 * max(1, round(case["share"] * length)) for length in case["lengths"])
    for rank, of_rank in enumerate(seen):
        for number, sent in enumerate(of_rank["sent"]):
            for found, needed in zip(sorted(size for _, size in sent), right):
                if found != needed:
                    both = f"`count` = {needed // 8} values and their indices have {needed} bytes"
                    return (
                        f"in step {number + 1}, rank {rank} sends {found} bytes, but {both}: send exactly `count`"
                        " values, also if several values are equal or 0"
                    )
    return None


def a_bit_for_each(seen, case, expected):
    """Judge that in each step of one_bit, a rank sends one bit per gradient, in whole bytes, and `scale`, which has at
    most 8 bytes."""
    lengths = sorted(case["lengths"])
    for rank, of_rank in enumerate(seen):
        for number, sent in enumerate(of_rank["sent"]):
            for found, length in zip(sorted(size for _, size in sent), lengths):
                if found > (bits := -(-length // 8)) + 8:
                    needed = (
                        f"`positive` needs {bits} byte{'s' * (bits > 1)}, one bit per gradient, and `scale` is a single"
                        " number with 4 bytes"
                    )
                    return f"in step {number + 1}, rank {rank} sends {found} bytes for {length} gradients; {needed}"
    return None


ONE_BIT = Criterion(
    "one_bit_error_feedback",
    "the hook sends signs, with error feedback",
    3,
    lambda *all: only_its_message("the mean of the signs")(*all) or a_bit_for_each(*all),
    "owed = gradients + residual; the new residual is `owed` minus scale or -scale.",
)
TOP_K = Criterion(
    "top_k_error_feedback",
    "the hook sends the largest values, with error feedback",
    3,
    lambda *all: only_its_message("the mean of what was sent")(*all) or as_many_as_count(*all),
    "The residual is `owed`, with 0 at the indices of the values that are sent.",
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
