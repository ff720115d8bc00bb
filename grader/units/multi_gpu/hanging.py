"""The check of hanging.py."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion


def mean_on_rank_0(seen, case, expected):
    found, losses = numpy.round(seen[0]["log"], 6), numpy.array(case["losses"])  # the losses are in single precision
    if len(found) != len(losses):
        return f"after {len(losses)} epochs `log` has {len(found)} losses on rank 0; it should have one for each epoch"
    wrong = {
        "that is the sum over the ranks: divide it by their number": losses.sum(axis=1),
        "that is rank 0's own loss: no loss of another rank is in it": losses[:, 0],
        "that is rank 0's own loss, divided by the number of ranks: no loss of another rank is in it": losses[:, 0] / len(seen),
    }
    problem = criteria.explained(found, losses.mean(axis=1), wrong if len(seen) > 1 else {})
    if problem is None:
        return None
    return criteria.because(f"the ranks' losses are {criteria.some(losses[0].tolist())}, and rank 0 logs {found[0]:.6g}", problem)


CHECKS = (
    Check(
        "report",
        "grader.units.multi_gpu.probes.hanging:report",
        ({"ranks": 2, "losses": [[2.25, 4.5], [1.5, 0.25], [0.5, 3.125]]},),
        (Criterion("rank 0 logs the mean, and no rank waits for ever", 2, mean_on_rank_0, "A collective ends only when all ranks have called it."),),
        observed=lambda case: {"log": [float]},
    ),
)
