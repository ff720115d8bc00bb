"""Mini-batches for one worker or many: every image exactly once an epoch, the same number of steps on every worker."""

import math

import torch
from torch.utils.data import Sampler


class EpochBatches(Sampler):
    """A batch sampler over shard `rank` of the shards with the given `lengths` (images); one worker is
    ``[len(dataset)], 0``.

    Each epoch shuffles the shard again, in an order that follows from `seed` and `set_epoch` alone, and cuts it into
    batches of at most `batchsize` images. All workers make the same number of steps, so that no all-reduce waits for a
    worker that has run out of images; where shards don't divide, batches are a little smaller instead, equal to within
    one image.

    `totals[i]` is the number of images that all workers together take in step i: what their summed loss must be divided
    by.
    """

    def __init__(self, lengths, rank, batchsize, seed):
        self.steps = math.ceil(max(lengths) / batchsize)
        self.totals = [sum(part_length(length, self.steps, step) for length in lengths) for step in range(self.steps)]
        self.length, self.seed, self.epoch = lengths[rank], seed, 0

    def set_epoch(self, epoch):
        """Choose the order of the next pass. Without it, every epoch has the same batches in the same order."""
        self.epoch = epoch

    def __len__(self):
        return self.steps

    def __iter__(self):
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + self.epoch)
        order = torch.randperm(self.length, generator=generator)
        return iter([batch.tolist() for batch in order.tensor_split(self.steps)])


def part_length(length, parts, index):
    """The length of part `index` when `length` things are split into `parts` as `torch.tensor_split` does it."""
    return length // parts + (index < length % parts)
