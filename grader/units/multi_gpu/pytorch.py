"""The checks of train_cifar_multi_gpu.py, PyTorch."""

from grader.checks.check import Check
from grader.checks.pytorch import DEVICE_OF_RANK, PROBES, REPLICA, SHUFFLE, SPLIT_CRITERIA, STEP_OF_RANKS, THROUGHPUT_OF_RANKS, run

SPLIT = Check("split", f"{PROBES}:split", ({"ranks": 3, "images": 44},), SPLIT_CRITERIA)
CHECKS = (DEVICE_OF_RANK, SPLIT, REPLICA, SHUFFLE, STEP_OF_RANKS, THROUGHPUT_OF_RANKS, run("multi_gpu", {"ranks": 2, "batchsize": 13}))
