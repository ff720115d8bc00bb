"""The checks of train_cifar_multi_gpu.py, PyTorch."""

from grader.checks.pytorch import device_of_rank, replica, run, shuffle, split, step_of_ranks, throughput

CHECKS = (
    device_of_rank({"ranks": 2, "gpu": [0, 1]}, {"ranks": 2, "gpu": [5, 2]}),
    split("split", {"ranks": 3, "images": 44, "another_seed": True}, {"ranks": 3, "images": 43}),
    replica({"ranks": 2, "lengths": [3, 4], "batchsize": 4}, {"ranks": 3, "lengths": [2, 1, 2], "batchsize": 2}),
    shuffle({"ranks": 2, "lengths": [11, 12], "batchsize": 4}),
    step_of_ranks({"ranks": 2, "lengths": [5, 9], "batchsize": 5, "epochs": 3, "lr": 0.1}),
    throughput(
        {"ranks": 2, "lengths": [12, 13], "epochs": 3, "first_epoch": 0, "seconds": 12.5, "batchsize": 8},
        {"ranks": 2, "lengths": [13, 12], "epochs": 4, "first_epoch": 2, "seconds": 8.0, "batchsize": 8},
    ),
    run("multi_gpu", {"ranks": 2, "batchsize": 13}),
)
