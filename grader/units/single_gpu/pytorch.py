"""The checks of train_cifar_single_gpu.py, PyTorch."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.pytorch import DEVICE, SHUFFLE, STEP, THROUGHPUT, run

HERE = "grader.units.single_gpu"


def updates_as_sgd(seen, case, expected):
    found = seen[0]["parameters"]

    def trace(lr, momentum, nesterov=False):
        parameters, velocity = [found[0]], 0
        for gradient in expected["gradients"]:
            velocity = momentum * velocity + gradient
            parameters.append(parameters[-1] - lr * (gradient + momentum * velocity if nesterov else velocity))
        return numpy.stack(parameters)

    wrong = {
        "the parameters do not change: does the optimizer have those of `model`?": trace(0, 0),
        "it updates without momentum": trace(case["lr"], 0),
        "the learning rate is not args.lr (PyTorch's default, 0.001, is used)": trace(0.001, 0.9),
        "the learning rate is not args.lr but 0.1": trace(0.1, 0.9),
        "the learning rate is not args.lr but 0.01": trace(0.01, 0.9),
        "it uses Nesterov's momentum; the lecture's is the plain one": trace(case["lr"], 0.9, nesterov=True),
    }
    right = trace(case["lr"], 0.9)
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
