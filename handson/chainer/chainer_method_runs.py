"""What the Chainer track's train_hooks.py needs beside its lesson. Both tracks share handson.training.method_runs,
whose names are here, too."""

from handson.chainer import data, devices
from handson.chainer.evaluators import Evaluator

import chainer
import numpy
from chainer.iterators import SerialIterator
from chainer.training.updaters import StandardUpdater

from handson.errors import TrackError
from handson.training import method_runs, progress
from handson.training.method_runs import add_options, one_run, runs  # noqa: F401 - for scripts


def device(comm, args):
    """The device of this rank: `args.gpu` lists those of its node."""
    return devices.use(list(args.gpu)[comm.intra_rank])


class FiniteLoss(chainer.LinkHook):
    """Ends all ranks with a sentence that names the rank whose loss is infinite or NaN: after an all-reduce, all ranks
    would have its gradients."""

    name = "FiniteLoss"

    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def forward_postprocess(self, args):
        if chainer.config.train and not numpy.isfinite(float(args.out.array)):
            raise TrackError(f"rank {self.rank}: the loss is infinite or NaN, so the run ends: try a lower --lr")


def updater(part, args, optimizer, device):
    """An updater that trains on a rank's part of the images, in an order that follows from args.seed."""
    optimizer.target.add_hook(FiniteLoss(optimizer.communicator.rank))
    order = data.Shuffle(args.seed)
    batches = SerialIterator(part, args.batchsize, order_sampler=order)
    return StandardUpdater(batches, optimizer, data.Enlarge(args.size), device)


def wait(optimizer):
    """Wait for the all-reduce that an optimizer with double buffering has in flight."""
    if "in_flight" in vars(optimizer):
        optimizer.wait()


class Progress(method_runs.Progress):
    """The table of a training with Chainer."""

    def __init__(self, comm, method):
        super().__init__(comm, method, comm.mpi_comm.Barrier)

    def add(self, loss, model, test_set, updater):
        """One more epoch is over. Rank 0 evaluates, while the clock stands still."""
        progress.progress()
        iterator = SerialIterator(test_set, 256, repeat=False, shuffle=False)
        evaluator = Evaluator(iterator, model, updater.converter, updater.device)
        super().add(loss, lambda: float(evaluator()["main/accuracy"]))
