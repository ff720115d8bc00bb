"""The checks of train_cifar_single_gpu.py, Chainer."""

from grader.checks import training
from grader.checks.chainer_gaps import (
    CONVERTED,
    MOMENTUM_SGD,
    PROBES,
    UPDATE,
    iterator,
    optimizer,
    run,
    throughput,
    updater,
)
from grader.checks.check import Check, Criterion

DEVICE = Check(
    "device",
    f"{PROBES}:device",
    ({"gpu": [0]}, {"gpu": [2]}),
    (
        Criterion(
            "right_gpu",
            "`device` is the first GPU of args.gpu",
            1,
            training.right_gpu,
            "`devices.use(id)` chooses a GPU. args.gpu is a list of ids.",
        ),
    ),
    observed=lambda case: {"gpu": object},
)
CHECKS = (
    DEVICE,
    iterator({"images": 43, "batchsize": 5}),
    optimizer((MOMENTUM_SGD,), {"updates": 3, "lr": 0.037, "batchsize": 8}),
    updater((UPDATE, CONVERTED), {"batchsize": 4, "updates": 3, "lr": 0.02}),
    throughput(
        {"lengths": [25], "batchsize": 7, "epochs": 4, "first_epoch": 0, "seconds": 12.5},
        {"lengths": [24], "batchsize": 6, "epochs": 5, "first_epoch": 2, "seconds": 8.0},
    ),
    run("single_gpu", workers=1, batchsize=24, epochs=2),
)
