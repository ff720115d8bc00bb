"""Mini-batches for one or many workers: every image exactly once per epoch, and the same number of steps on every
worker."""

import math

import torch
from torch.utils.data import Sampler


class EpochBatches(Sampler):
    """A batch sampler over shard `rank` of the shards with the given `lengths` (images); for one worker, use
    ``[len(dataset)], 0``.

    Each epoch shuffles the shard again, in an order that is derived from `seed` and `set_epoch`, and splits it into
    batches of at most `batchsize` images. All workers run the same number of steps, so that no all-reduce waits for a
    worker without images. If the shards cannot be divided evenly, batches are a little smaller, and differ by at most
    one image.

    `totals[i]` is the number of images of all workers in step i: divide the summed loss by it.
    """

    def __init__(self, lengths, rank, batchsize, seed):
        self.steps = math.ceil(max(lengths) / batchsize)
        self.totals = [sum(part_length(length, self.steps, step) for length in lengths) for step in range(self.steps)]
        self.length, self.seed, self.epoch = lengths[rank], seed, 0

    def set_epoch(self, epoch):
        """Choose the order of the next epoch. Without this call, every epoch has the same batches in the same order."""
        self.epoch = epoch

    def __len__(self):
        return self.steps

    def __iter__(self):
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + self.epoch)
        order = torch.randperm(self.length, generator=generator)
        return iter([batch.tolist() for batch in order.tensor_split(self.steps)])


def part_length(length, parts, index):
    """Return the length of part `index` when `torch.tensor_split` splits `length` elements into `parts`."""
    return length // parts + (index < length % parts)
