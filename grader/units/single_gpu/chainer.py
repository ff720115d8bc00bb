"""The checks of train_cifar_single_gpu.py, Chainer."""

from grader.checks import training
from grader.checks.chainer import CONVERTED, ITERATOR, MOMENTUM_SGD, PROBES, UPDATE, run, throughput, training_check
from grader.checks.check import Check, Criterion

DEVICE = Check(
    "device",
    f"{PROBES}:device",
    ({"workers": 1, "gpu": [0]}, {"workers": 1, "gpu": [2, 1]}),
    (Criterion("the GPU asked for", 1, training.right_gpu, "devices.use(id) chooses a GPU; args.gpu is a list of ids."),),
)
OPTIMIZER = training_check(
    "optimizer",
    ({"workers": 1, "batchsize": 4, "updates": 3, "lr": 0.037},),
    (Criterion("momentum SGD with the rate asked for", 1, training.one_big_batch, MOMENTUM_SGD),),
)
UPDATER = training_check("updater", ({"workers": 1, "batchsize": 4, "updates": 3, "lr": 0.02},), (UPDATE, CONVERTED))
CHECKS = (DEVICE, ITERATOR, OPTIMIZER, UPDATER, throughput([48]), run("single_gpu", workers=1, batchsize=24, epochs=2))
