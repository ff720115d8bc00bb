"""The checks of half_and_late.py, Chainer: the gradients after the communicator's mean, and the parameters after the
optimizer's updates."""

import numpy

from grader.checks import criteria, sgd
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBES, ORACLES = (
    "grader.units.communication.probes.probe_communication_chainer",
    "grader.units.communication.oracles.oracle_communication_chainer",
)
BYTES = {"float16": 2, "float32": 4, "float64": 8}


def mean_of_gradients(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        found = numpy.asarray(of_rank["gradients"])
        if criteria.close(found, expected["mean"], 2e-3):
            continue
        own = len(seen) > 1 and criteria.close(found, expected["own"][rank], 2e-3)
        if own:
            return f"after multi_node_mean_grad, rank {rank} still has its own gradients"
        return f"after multi_node_mean_grad, rank {rank} does not have the mean of all ranks' gradients"
    return None


def bytes_of_type(seen, case, expected):
    of_parameters = case.get("of", "float32")
    right = BYTES[case["dtype"] or of_parameters] * sum(case["lengths"])
    for rank, of_rank in enumerate(seen):
        if of_rank["sent"] != right:
            what = (
                f"for half({case['dtype']!r}), rank {rank} passes {of_rank['sent']} bytes to the all-reduce of"
                f" {sum(case['lengths'])} gradients"
            )
            due = case["dtype"] or f"{of_parameters}, the type of the parameters"
            return f"{what}; as {due}, the gradients have {right} bytes"
    return None


def as_simulated(seen, case, expected):
    right, tolerance = expected["right"], 1e-2 if "dtype" in case else 1e-5
    for rank, of_rank in enumerate(seen):
        found = numpy.asarray(of_rank["parameters"])
        if criteria.close(found, right, tolerance):
            continue
        sentence = next(
            (
                sentence
                for sentence, values in expected.items()
                if sentence != "right"
                and criteria.close(found, values[rank] if values.ndim == 3 else values, tolerance)
            ),
            None,
        )
        if not sentence and not numpy.ptp(found[:3], axis=0).any():
            sentence = (
                "the first three updates change nothing: does your code call create_multi_node_optimizer twice? Each"
                " multi-node optimizer loses its first updates"
            )
        if not sentence and (rate := sgd.ratio((found - found[0]).ravel(), (right - right[0]).ravel(), 1e-2)):
            sentence = (
                f"the learning rate is {rate:.3g} times the rate of the optimizer that `late` receives: do not change"
                " it"
            )
        step = next(step for step in range(len(right)) if not criteria.close(found[step], right[step], tolerance))
        return sentence or f"on rank {rank}, the parameters after update {step + 1} are not those of double buffering"
    return None


def in_flight(seen, case, expected):
    """Judge that when an update returns, its all-reduce has started and was not waited for. The first update makes the
    parameters equal."""
    for rank, of_rank in enumerate(seen):
        for number, under_way in enumerate(of_rank["under way"][1:], start=2):
            if under_way != 1:
                return (
                    f"after update {number} on rank {rank}, {under_way} all-reduces are in flight; there should be"
                    " one, that of this update's gradients"
                )
        dtype = case.get("dtype", "float32")
        right = (case["updates"] - 1) * BYTES[dtype] * sum(case["lengths"])
        if of_rank["sent"] != right:
            return (
                f"in {case['updates']} updates, rank {rank} passes {of_rank['sent']} bytes to all-reduces; with `comm`,"
                f" which sends {dtype} here, it should pass {right}"
            )
    return None


HALF = (
    Criterion(
        "mean_gradients",
        "`comm` computes the mean of the gradients",
        2,
        mean_of_gradients,
        "create_communicator returns a communicator of all ranks.",
    ),
    Criterion(
        "half_bytes",
        "`comm` sends gradients as `dtype`",
        1,
        bytes_of_type,
        "Pass `dtype` as allreduce_grad_dtype.",
        needs="mean_gradients",
    ),
)
LATE = (
    Criterion(
        "mean_of_last_step",
        "each update uses the mean of the previous step",
        2,
        as_simulated,
        "create_multi_node_optimizer(optimizer, comm, double_buffering=...)",
    ),
    Criterion(
        "overlaps_updates",
        "an all-reduce runs between updates",
        1,
        in_flight,
        "With double buffering, the optimizer starts the all-reduce and does not wait for it.",
        needs="mean_of_last_step",
    ),
)
CHECKS = (
    Check(
        "half",
        f"{PROBES}:half",
        (
            {"dtype": "float16", "ranks": 2, "lengths": [5, 9]},
            {"dtype": None, "ranks": 2, "lengths": [5, 9]},
            {"dtype": "float32", "ranks": 2, "lengths": [4], "of": "float64"},
            {"dtype": None, "ranks": 2, "lengths": [3], "of": "float64", "edge": "parameters in double precision"},
        ),
        HALF,
        f"{ORACLES}:half",
        observed=lambda case: {"gradients": Array((sum(case["lengths"]),)), "sent": int},
    ),
    Check(
        "late",
        f"{PROBES}:late",
        (
            {"ranks": 2, "lengths": [4, 7], "updates": 5, "lr": 0.125},
            {"ranks": 2, "lengths": [4, 7], "updates": 4, "lr": 0.125, "dtype": "float16"},
        ),
        LATE,
        f"{ORACLES}:late",
        observed=lambda case: {
            "parameters": Array((case["updates"], sum(case["lengths"]))),
            "under way": (int,) * case["updates"],
            "sent": int,
        },
    ),
)
