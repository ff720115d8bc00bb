"""The checks of train_cifar_multi_gpu.py, PyTorch."""

from grader.checks.pytorch_gaps import device_of_rank, replica, run, sampler, shuffle, step_of_ranks, throughput

CHECKS = (
    device_of_rank({"ranks": 3, "gpu": [5, 2, 4]}, {"ranks": 3, "gpu": [3, 3, 1]}),
    sampler({"ranks": 3, "images": 44}, {"ranks": 3, "images": 198}),
    replica({"ranks": 2, "lengths": [3, 4], "batchsize": 4}, {"ranks": 3, "lengths": [2, 1, 2], "batchsize": 2}),
    shuffle({"ranks": 2, "images": 24, "batchsize": 6}),
    step_of_ranks({"ranks": 2, "lengths": [5, 8], "steps": 4, "lr": 0.1}),
    throughput(
        {"ranks": 2, "lengths": [14, 14], "epochs": 3, "first_epoch": 0, "seconds": 12.5, "batchsize": 8},
        {"ranks": 2, "lengths": [13, 13], "epochs": 4, "first_epoch": 0, "seconds": 8.0, "batchsize": 8},
    ),
    run("multi_gpu", {"ranks": 2, "batchsize": 12}),
)
