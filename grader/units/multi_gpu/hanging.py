"""The check of hanging.py."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion

SINGLE = 1e-6  # the losses are in single precision


def mean_on_rank_0(seen, case, expected):
    found, losses = numpy.array(seen[0]["log"]), numpy.array(case["losses"])
    if len(found) != len(losses):
        return f"after {len(losses)} epochs `log` has {len(found)} losses on rank 0; it should have one for each epoch"
    right = losses.mean(axis=1)
    wrong = {
        "that is the sum over the ranks: divide it by their number": losses.sum(axis=1),
        "that is the largest loss": losses.max(axis=1),
        "that is the mean, divided by the number of ranks once more": losses.mean(axis=1) / len(seen),
        f"that is the sum over {len(seen)} ranks, divided by 2: divide it by their number": losses.sum(axis=1) / 2,
        "that is the last rank's loss (`[tensor] * n` is a list with one tensor n times)": losses[:, -1],
        "that is rank 0's own loss: no loss of another rank is in it": losses[:, 0],
        (
            "that is rank 0's own loss, divided by the number of ranks: no loss of another rank is in it, or it is"
            " read before `wait()`"
        ): (losses[:, 0] / len(seen)),
    }
    problem = criteria.explained(found, right, wrong if len(seen) > 1 else {}, SINGLE)
    if problem is None:
        return None
    epoch = next(epoch for epoch, mean in enumerate(right) if not criteria.close(found[epoch], mean, SINGLE))
    shown, mean = criteria.distinct_digits(found[epoch], right[epoch], 6)
    logged = (
        f"the ranks' losses are {criteria.first_few(losses[epoch].tolist())}, and rank 0 logs {shown}; their mean is"
        f" {mean}"
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
                "rank 0 logs the mean, and no rank waits for ever",
                2,
                mean_on_rank_0,
                "A collective ends only when all ranks have called it.",
            ),
        ),
        observed=lambda case: {"log": [float]},
    ),
)
