"""Shared code of the Chainer track's train_hooks.py. Both tracks share handson.training.method_runs, whose names this
module exports, too."""

from handson.chainer.evaluators import Evaluator

import chainer
import numpy
from chainer.iterators import SerialIterator

from handson.errors import TrackError
from handson.training import method_runs, progress
from handson.training.method_runs import add_options, one_run, runs  # noqa: F401 - for scripts


class FiniteLoss(chainer.LinkHook):
    """End all ranks if a loss is infinite or NaN, with a sentence that names its rank. An all-reduce would spread its
    gradients to all ranks."""

    name = "FiniteLoss"

    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def forward_postprocess(self, args):
        if chainer.config.train and not numpy.isfinite(float(args.out.array)):
            raise TrackError(f"rank {self.rank}: the loss is infinite or NaN, so the run ends: try a lower --lr")


def wait(optimizer):
    """Wait for the all-reduce that an optimizer with double buffering has in flight."""
    if "in_flight" in vars(optimizer):
        optimizer.wait()


class Progress(method_runs.Progress):
    """The progress table of a run with Chainer."""

    def __init__(self, comm, method):
        super().__init__(comm.rank, method, comm.mpi_comm.Barrier)

    def add(self, loss, model, test_set, convert, device):
        """Add an epoch. Rank 0 evaluates the model while the clock is stopped."""
        progress.progress()
        iterator = SerialIterator(test_set, 256, repeat=False, shuffle=False)
        evaluator = Evaluator(iterator, model, converter=convert, device=device)
        super().add(loss, lambda: float(evaluator()["main/accuracy"]))
