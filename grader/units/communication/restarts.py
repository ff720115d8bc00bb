"""The checks of train_restarts.py: an interrupted run ends with the same parameters as an uninterrupted run."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBE, ORACLE = (
    "grader.units.communication.probes.probe_restarts:restart",
    "grader.units.communication.oracles.oracle_restarts:restart",
)


def as_uninterrupted(seen, case, expected):
    right = expected["right"]
    wrong = {
        sentence: values
        for sentence, values in expected.items()
        if sentence != "right" and not criteria.close(values, right)
    }
    for rank, of_rank in enumerate(seen):
        problem = criteria.explained(of_rank["parameters"], right, wrong)
        if problem is not None:
            difference = numpy.abs(of_rank["parameters"] - right).max()
            found = (
                f"{case['steps'] - case['stop']} steps after a restart, the parameters of rank {rank} differ by up to"
                f" {difference:.2g} from those of an uninterrupted run"
            )
            return criteria.with_reason(found, problem)
    return None


CASE = {"ranks": 2, "samples": 20, "batchsize": 3, "lr": 0.1, "noise": 0.5, "steps": 7, "stop": 2}


def _check(gap, hint):
    judged = Criterion("resumes_exactly", "a restart changes no result", 3, as_uninterrupted, hint)
    return Check(gap, PROBE, (CASE,), (judged,), ORACLE, observed=lambda case: {"parameters": Array((None,))})


CHECKS = (
    _check(
        "state",
        "Model, optimizer and batches are equal on all ranks; residuals and random numbers differ from rank to rank.",
    ),
    _check(
        "restore",
        "Restore five parts: model, optimizer, batches, residuals (fill the given dictionary) and random numbers.",
    ),
)
