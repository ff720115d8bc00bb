"""MultiprocessParallelUpdater under the name in the lecture's scripts: Chainer's own if it can run, otherwise ours for
CPUs."""

from handson.chainer import cpu_updater, devices

from chainer.training import updaters as chainers

if devices.has_gpus() and devices.count() > 1 and chainers.MultiprocessParallelUpdater.available():
    MultiprocessParallelUpdater = chainers.MultiprocessParallelUpdater
    DESCRIPTION = "MultiprocessParallelUpdater: Chainer's own, on GPUs with CuPy and NCCL"
else:
    devices.take_virtual_gpus()
    MultiprocessParallelUpdater = cpu_updater.MultiprocessParallelUpdater
    DESCRIPTION = (
        "MultiprocessParallelUpdater: handson's, one process and one pinned CPU core per device "
        "(Chainer's own needs CuPy, NCCL, and a GPU for each device)"
    )
