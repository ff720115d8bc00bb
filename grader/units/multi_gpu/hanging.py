"""The check of hanging.py."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion

SINGLE = 1e-6  # the losses are in single precision


def mean_on_rank_0(seen, case, expected):
    found, losses = numpy.array(seen[0]["log"]), numpy.array(case["losses"])
    if len(found) != len(losses):
        return f"`log` has {len(found)} losses on rank 0 after {len(losses)} epochs: append one loss for each epoch"
    right = losses.mean(axis=1)
    wrong = {
        "rank 0 logs the sum over the ranks: divide it by the number of ranks": losses.sum(axis=1),
        "rank 0 logs the largest loss, not the mean": losses.max(axis=1),
        "rank 0 logs the mean, but divides it by the number of ranks a second time": losses.mean(axis=1) / len(seen),
        f"rank 0 divides the sum over {len(seen)} ranks by 2: divide it by the number of ranks": losses.sum(axis=1) / 2,
        "rank 0 logs the last rank's loss: `[tensor] * n` is a list with the same tensor n times": losses[:, -1],
        "rank 0 logs its own loss: the losses of the other ranks are missing": losses[:, 0],
        (
            "rank 0 logs its own loss, divided by the number of ranks: the losses of the other ranks are missing, or"
            " the tensor is read before `wait()`"
        ): (losses[:, 0] / len(seen)),
    }
    problem = criteria.explained(found, right, wrong if len(seen) > 1 else {}, SINGLE)
    if problem is None:
        return None
    epoch = next(epoch for epoch, mean in enumerate(right) if not criteria.close(found[epoch], mean, SINGLE))
    shown, mean = criteria.distinct_digits(found[epoch], right[epoch], 6)
    logged = (
        f"the ranks' losses are {criteria.first_few(losses[epoch].tolist())}, so their mean is {mean}, but rank 0"
        f" logs {shown}"
    )
    return criteria.with_reason(logged, problem)


CHECKS = (
    Check(
        "report",
        "grader.units.multi_gpu.probes.probe_hanging:report",
        ({"ranks": 3, "losses": [[2.3, 4.7, 2.3], [1.1, 0.2, 0.7], [0.4, 3.1, 1.9]]},),
        (
            Criterion(
                "rank_0_logs_mean",
                "rank 0 logs the mean loss, and no rank deadlocks",
                2,
                mean_on_rank_0,
                "A collective returns only when all ranks have called it.",
            ),
        ),
        observed=lambda case: {"log": [float]},
    ),
)
