"""MultiprocessParallelUpdater as the lecture's scripts import it: Chainer's own where it can run, else ours for
CPUs."""

from handson.chainer import cpu_updater

from chainer.backends import cuda
from chainer.training import updaters as chainers

USES_GPUS = cuda.available and chainers.MultiprocessParallelUpdater.available()

if USES_GPUS:
    MultiprocessParallelUpdater = chainers.MultiprocessParallelUpdater
    DESCRIPTION = "MultiprocessParallelUpdater: Chainer's own, on GPUs with CuPy and NCCL"
else:
    MultiprocessParallelUpdater = cpu_updater.MultiprocessParallelUpdater
    DESCRIPTION = (
        "MultiprocessParallelUpdater: handson's, one process and one pinned CPU core per device "
        "(Chainer's own needs CuPy and NCCL)"
    )
