"""The checks of hooks.py: each hook is compared with a simulation of its definition."""

import numpy

from grader.checks import criteria, sgd
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array, Counts

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
            part, problem = _first_wrong_part(of_rank.get("parts", ()))
            if fitting := [sentence for sentence in said if not part or _part_of(sentence) == part]:
                return fitting[0]
            if problem:
                return problem
            if not numpy.isfinite(found).all():
                return f"on rank {rank}, gradients are infinite or NaN{_overflow(case)}"
            step = next(step for step in range(len(right)) if not criteria.close(found[step], right[step], tolerance))
            if not right[step].any():
                return f"on rank {rank}, in step {step + 1}, {what} is not zeros, but there is no previous step"
            number = int(numpy.abs(found[step] - right[step]).argmax())
            shown, due = criteria.distinct_digits(found[step][number], right[step][number])
            times = sgd.ratio(found.ravel(), right.ravel(), tolerance)
            why = criteria.as_large(times) if times else ""
            return criteria.with_reason(
                f"on rank {rank}, in step {step + 1}, {what} of gradient {number} is {shown}; it should be {due}", why
            )
        return None

    return judge


def _part_of(sentence):
    """Return the part of a hook on which an oracle's sentence is."""
    if sentence.startswith(("the residual of", "in the first step")):
        return "owed"
    first = sentence.split()[0].strip("`")
    return first if first in ("scale", "positive", "places", "values") else "places" if "hook" in sentence else "left"


def _first_wrong_part(calls):
    """Return (the name of the first part that does not follow from the parts before it, a sentence), or ("", "").

    Each part is judged by the student's own earlier parts, so a mistake in one part is not called a mistake in another
    part. calls: the parts of each call, as grader.units.communication.probes.probe_hooks returns them.
    """
    for call in calls:
        sent = _sent(call)
        if sent is None or len(sent) != len(call["gradients"]):
            return "", ""
        left = call.get("left")
        owed = call["owed"] if "owed" in call else left + sent
        for part, found, right, problem in _judged(call, owed, sent):
            if found is None:
                return part, problem
            if found.shape != right.shape:
                return "", ""
            if criteria.close(found, right, EXACT):
                continue
            if "owed" not in call and part == "owed":  # the residual may also be the cause
                return "", ""
            number = int(numpy.abs(found - right).argmax())
            shown, due = criteria.distinct_digits(found[number], right[number])
            if part in ("owed", "left"):
                return part, f"{problem}, but for gradient {number} of a bucket, it is {shown} instead of {due}"
            return part, f"{problem}, but it is {shown} instead of {due}" if part == "scale" else problem
    return "", ""


def _sent(call):
    """Return the numbers that a call sends, by its own parts; None if it lacks some."""
    if {"scale", "positive"} <= call.keys() and call["scale"].size == 1:
        return numpy.where(call["positive"], call["scale"], -call["scale"])
    if {"places", "values"} <= call.keys() and call["places"].shape == call["values"].shape:
        sent, places = numpy.zeros(len(call["gradients"])), call["places"].astype(int)
        if 0 <= places.min(initial=0) and places.max(initial=0) < len(sent):
            sent[places] = call["values"]
            return sent
    return None


def _judged(call, owed, sent):
    """Yield (part, its numbers or None, the right ones by the earlier parts, what the part should be)."""
    yield "owed", owed, call["gradients"] + call.get("before", 0), "`owed` should be the gradients plus the residual"
    if "scale" in call:
        mean = "`scale` should be the mean of the absolute values of `owed`"
        yield "scale", call["scale"], numpy.abs(owed).mean(keepdims=True), mean
        yield "positive", 1.0 * call["positive"], 1.0 * (owed >= 0), "`positive` should be `owed >= 0`"
    else:
        places = call["places"].astype(int)
        largest = numpy.sort(numpy.abs(owed))[::-1][: len(places)]
        what = "`places` should be the indices of the largest absolute values of `owed`"
        yield "places", numpy.sort(numpy.abs(owed[places]))[::-1], largest, what
        yield "values", call["values"], owed[places], "`values` should be the numbers of `owed` at `places`"
    if "left" not in call:
        yield "left", None, owed, "no residual is stored: set residuals[index] to `owed` minus what is sent"
    yield "left", call["left"], owed - sent, "the new residual should be `owed` minus what is sent"


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
        "parts": [Counts(Array())],
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
