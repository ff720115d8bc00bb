"""The checks of train_cifar_single_gpu.py, PyTorch."""

from grader.checks import sgd
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.checks.pytorch_gaps import DEVICE, STEP, loader, run, throughput

HERE = "grader.units.single_gpu"


OPTIMIZER = Check(
    "optimizer",
    f"{HERE}.probes.probe_single_gpu_pytorch:optimizer",
    ({"lr": 0.037, "updates": 3, "batchsize": 8},),
    (
        Criterion(
            "momentum_sgd",
            "`optimizer` is momentum SGD with learning rate args.lr",
            1,
            sgd.updates("PyTorch"),
            "torch.optim.SGD(parameters, lr=..., momentum=...)",
        ),
    ),
    oracle=f"{HERE}.oracles.oracle_single_gpu_pytorch:gradients",
    observed=lambda case: {"parameters": Array((case["updates"] + 1, None))},
)
CHECKS = (
    DEVICE,
    OPTIMIZER,
    loader({"images": 23, "batchsize": 5}),
    STEP,
    throughput(
        {"lengths": [23], "epochs": 3, "first_epoch": 0, "seconds": 12.5, "batchsize": 8},
        {"lengths": [23], "epochs": 4, "first_epoch": 0, "seconds": 8.0, "batchsize": 8},
    ),
    run("single_gpu", {}),
)
