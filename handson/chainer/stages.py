"""Helpers of the Chainer track's train_pipeline.py: options, checks before a rank can wait, layers and batches."""

from handson.chainer import data, transformer

import chainer
import numpy
from chainer.iterators import SerialIterator

from handson import pipelines
from handson.errors import TrackError
from handson.training import method_runs, progress, transformer_options

# ChainerMN has called its links and functions of model parallelism "experimental" since 2018
chainer.disable_experimental_feature_warning = True


def check(comm, args, micro_batches):
    """Raise TrackError on all ranks if the layers or the batch cannot be divided."""
    if problem := pipelines.division_problem(comm.size, args.blocks + 2, args.batchsize, micro_batches):
        raise TrackError(problem, on_all_ranks=True)


def part(comm, args, classes):
    """Return the layers of this rank's stage as a Sequential, with the parameters of the whole network. Raises
    TrackError."""
    if problem := transformer_options.problem(args):
        raise TrackError(problem, on_all_ranks=True)
    numpy.random.seed(args.seed)
    count = args.blocks + 2
    mine = range(comm.rank * count // comm.size, (comm.rank + 1) * count // comm.size)
    everything = transformer.layers(classes, args.size, args.patch, args.width, args.heads, args.blocks)
    return chainer.Sequential(*[layer for number, layer in enumerate(everything) if number in mine])


def batches(train_set, args, device):
    """Yield the complete batches of one epoch after another: images (N, 3, size, size) and labels (N,), equal on all
    ranks."""
    convert, order = data.Enlarge(args.size), data.Shuffle(args.seed)
    for batch in SerialIterator(train_set, args.batchsize, order_sampler=order):
        progress.progress()
        yield convert(batch, device)


class Progress(method_runs.Progress):
    """The progress table of a training run whose loss only the last rank has."""

    def __init__(self, comm, method):
        self.comm = comm
        super().__init__(comm.rank, method, comm.mpi_comm.Barrier, accuracy=False)

    def add(self, loss):
        super().add(self.comm.mpi_comm.bcast(loss, root=self.comm.size - 1))
