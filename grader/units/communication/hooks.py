"""The checks of hooks.py: each hook against a simulation of its definition, and what it sends."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBE, ORACLE = "grader.units.communication.probes.pytorch:hook", "grader.units.communication.oracles.pytorch:hook"


def _as_simulated(tolerance, what):
    """A judge: the gradients after backward are those of the simulation, in each step and on each rank."""

    def judge(seen, case, expected):
        right = expected["right"]
        for rank, of_rank in enumerate(seen):
            found = numpy.asarray(of_rank["steps"])
            if criteria.close(found, right, tolerance):
                continue
            for sentence, values in expected.items():
                if sentence != "right" and not criteria.close(values, right, tolerance) and criteria.close(found, values, tolerance):
                    return sentence
            if not numpy.isfinite(found).all():
                return f"on rank {rank} gradients are infinite or NaN{_overflow(case)}"
            step = next(step for step in range(len(right)) if not criteria.close(found[step], right[step], tolerance))
            number = int(numpy.abs(found[step] - right[step]).argmax())
            return f"on rank {rank}, in step {step + 1}, {what} of gradient {number} is {found[step][number]:.4g}; it should be {right[step][number]:.4g}"
        return None

    return judge


def _overflow(case):
    return ": float16 ends at 65,504, and the sum over the ranks is larger; divide before you convert" if case.get("dtype") == "float16" else ""


def half_the_bytes(seen, case, expected):
    most = 2 * sum(case["lengths"])
    for rank, of_rank in enumerate(seen):
        for sent in of_rank["sent"]:
            total = sum(size for _, size in sent)
            if total > most:
                return f"rank {rank} hands {total} bytes to the all-reduce of {sum(case['lengths'])} gradients; as {case['dtype']} they have {most}"
            if not total:
                return f"rank {rank} sends nothing"
    return None


def in_flight(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        for number, sent in enumerate(of_rank["sent"]):
            if len(sent) != len(case["lengths"]):
                return f"in step {number + 1} rank {rank} starts {len(sent)} all-reduces for {len(case['lengths'])} buckets: one for each, in every step"
    return None


def _observed(case):
    return {"steps": (Array((sum(case["lengths"]),)),) * case["steps"], "sent": ([(str, int)],) * case["steps"]}


HALF = (
    Criterion("the mean of the gradients", 2, _as_simulated(2e-2, "the mean"), "Divide by dist.get_world_size(), convert with .to(dtype), and back when it has come."),
    Criterion("half the bytes", 1, half_the_bytes, "What goes into dist.all_reduce must have the short type already.", needs="the mean of the gradients"),
)
ONE_BIT = Criterion("signs, with error feedback", 3, _as_simulated(1e-5, "the mean of the signs"), "owed = gradients + residual; residual = owed - what is sent.")
TOP_K = Criterion("the largest, with error feedback", 3, _as_simulated(1e-5, "the mean of what was sent"), "The residual is `owed`, with 0 where a value was sent.")
CHECKS = (
    Check(
        "half", PROBE,
        (
            {"function": "half", "dtype": "float16", "ranks": 2, "lengths": [5, 9], "steps": 2},
            {"function": "half", "dtype": "float16", "ranks": 2, "lengths": [4], "steps": 1, "large": True},
        ), HALF, ORACLE, observed=_observed,
    ),
    Check("one_bit", PROBE, ({"function": "one_bit", "ranks": 2, "lengths": [6, 11], "steps": 4, "zeros": True},), (ONE_BIT,), ORACLE, observed=_observed),
    Check("top_k", PROBE, ({"function": "top_k", "ranks": 2, "lengths": [12, 20], "steps": 4, "share": 0.25},), (TOP_K,), ORACLE, observed=_observed),
    Check(
        "late", PROBE, ({"function": "late", "ranks": 2, "lengths": [4, 7], "steps": 4},),
        (
            Criterion("the mean of the step before", 2, _as_simulated(1e-5, "the mean"), "pending[index] has what was started in the step before."),
            Criterion("an all-reduce for each bucket, in every step", 1, in_flight, "dist.all_reduce(tensor, async_op=True) starts one.", needs="the mean of the step before"),
        ), ORACLE, observed=_observed,
    ),
)  # fmt: skip
