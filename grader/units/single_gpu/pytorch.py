"""The checks of train_cifar_single_gpu.py, PyTorch."""

import numpy

from grader.checks import criteria, sgd
from grader.checks.check import Check, Criterion
from grader.checks.pytorch import DEVICE, SHUFFLE, STEP, THROUGHPUT, run

HERE = "grader.units.single_gpu"


def updates_as_sgd(seen, case, expected):
    found = seen[0]["parameters"]

    def trace(**rule):
        parameters, velocity = [found[0]], 0
        for gradient in expected["gradients"]:
            velocity, change = sgd.step(velocity, gradient, **{"lr": case["lr"]} | rule)
            parameters.append(parameters[-1] + change)
        return numpy.stack(parameters)

    wrong = {"the parameters do not change: does the optimizer have those of `model`?": trace(lr=0)}
    wrong |= {sentence: trace(**rule) for sentence, rule in sgd.mistakes("PyTorch", 0.001).items()}
    right = trace()
    problem = criteria.explained(found, right, wrong)
    if problem is None:
        return None
    moved, should = (numpy.abs(values[-1] - found[0]).max() for values in (found, right))
    return (
        f"{problem or 'the updates are not those of SGD with momentum'}: three updates move parameters by up to {moved:.2g}; with learning rate "
        f"{case['lr']} and momentum 0.9 by up to {should:.2g}"
    )


OPTIMIZER = Check(
    "optimizer",
    f"{HERE}.probes.pytorch:optimizer",
    ({"lr": 0.037},),
    (Criterion("SGD with momentum and the rate asked for", 1, updates_as_sgd, "torch.optim.SGD(parameters, lr=..., momentum=...)"),),
    oracle=f"{HERE}.oracles.pytorch:gradients",
)
CHECKS = (DEVICE, OPTIMIZER, SHUFFLE, STEP, THROUGHPUT, run("single_gpu", {}))
