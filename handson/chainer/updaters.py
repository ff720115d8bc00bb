"""MultiprocessParallelUpdater under the name in the lecture's scripts: Chainer's own if it can run, otherwise ours for
CPUs."""

from handson.chainer import cpu_updater, devices

from chainer.training import updaters as chainers
from chainer.training.updaters import multiprocess_parallel_updater

from handson.training import rank_watcher
from handson.training.worker_processes import end_with_parent


def end_together(worker):
    """Make the workers of Chainer's own updater, of the class `worker`, end with the main process. A watcher ends that
    process if it makes no progress, because it would wait forever in NCCL for a worker that has failed."""
    run = worker.run

    def run_until_main_ends(self):
        end_with_parent()
        run(self)

    worker.run = run_until_main_ends
    rank_watcher.watch()


if devices.has_gpus() and devices.count() > 1 and chainers.MultiprocessParallelUpdater.available():
    end_together(multiprocess_parallel_updater._Worker)
    MultiprocessParallelUpdater = chainers.MultiprocessParallelUpdater
    DESCRIPTION = "MultiprocessParallelUpdater: Chainer's own, on GPUs with CuPy and NCCL"
else:
    devices.take_virtual_gpus()
    MultiprocessParallelUpdater = cpu_updater.MultiprocessParallelUpdater
    DESCRIPTION = (
        "MultiprocessParallelUpdater: handson's, one process and one pinned CPU core per device "
        "(Chainer's own needs CuPy, NCCL, and a GPU for each device)"
    )
