"""Training from image files, where each worker reads its part of every batch: for data larger than memory, and for runs
that resume exactly."""

import torch
from torch.utils.data import Dataset, Sampler

from handson.errors import TrackError
from handson.training.map_files import MapFile


class ImageFiles(Dataset):
    """The images of a map file as (image, label): float32 (channels, height, width) in [0, 1], and an int. An image is
    read when it is indexed."""

    def __init__(self, map_file, classes=None):
        self.files = MapFile(map_file, classes)
        self.path, self.name, self.shape = self.files.path, self.files.path.parent.name, self.files.shape

    def __len__(self):
        return len(self.files)

    def __getitem__(self, number):
        pixels, label = self.files[number]
        return torch.tensor(pixels).float() / 255, label

    def batch(self, numbers):
        """Return (images, labels) as tensors; `numbers` may be empty."""
        pairs = [self[number] for number in numbers]
        images = torch.stack([image for image, _ in pairs]) if pairs else torch.empty(0, *self.shape)
        return images, torch.tensor([label for _, label in pairs], dtype=torch.int64)


class Partition(Sampler):
    """A batch sampler for one of several workers, whose state is two numbers: the epoch, and how many samples of it
    have been taken.

    Every epoch contains each sample once, in an order that depends only on `seed` and the epoch. In a step, all workers
    together take the next samples, at most `batchsize` (`total` is their number). The workers' parts differ by at most
    one sample, for any number of workers. The state is the same on all workers, so a run can resume with another number
    of workers. The state is exact after each batch only if the DataLoader has no worker processes (num_workers=0),
    because worker processes fetch batches in advance.
    """

    def __init__(self, samples, batchsize, partitions=1, partition=0, seed=0, shuffle=True):
        check(partitions, partition)
        if samples < partitions:
            raise TrackError(f"there are {partitions} workers, but only {samples} images: use fewer workers")
        if batchsize < partitions:
            raise TrackError(
                f"a batch of {batchsize} images is too small for {partitions} workers: each worker needs an image in"
                " every step"
            )
        self.samples, self.batchsize, self.partitions, self.partition = samples, batchsize, partitions, partition
        self.seed, self.shuffle, self.epoch, self.position, self.total = seed, shuffle, 0, 0, 0

    def __iter__(self):
        """Yield the remaining batches of this epoch. At the end, `epoch` is increased by 1."""
        epoch = self.epoch
        while self.epoch == epoch:
            left = self.samples - self.position
            steps = -(-left // self.batchsize)
            yield self.take(-(-left // steps), self.partitions, self.partition)

    def take(self, count, partitions, partition):
        """Return the sample numbers of one partition of the next `count` samples, or fewer at the end of the epoch."""
        check(partitions, partition)
        of_all = self._order()[self.position : self.position + count]
        self.total = len(of_all)
        self.position += self.total
        if self.position == self.samples:
            self.epoch, self.position = self.epoch + 1, 0
        return of_all.tensor_split(partitions)[partition].tolist()

    def _order(self):
        if not self.shuffle:
            return torch.arange(self.samples)
        if getattr(self, "_of", None) != (self.seed, self.epoch):  # cached for the epoch: 8 bytes per sample
            self._of = self.seed, self.epoch
            self._shuffled = torch.randperm(
                self.samples, generator=torch.Generator().manual_seed(1_000_003 * self.seed + self.epoch)
            )
        return self._shuffled

    def state_dict(self):
        """Return the position of the workers: {"epoch": ..., "position": ..., "samples": ...}."""
        return {"epoch": self.epoch, "position": self.position, "samples": self.samples}

    def load_state_dict(self, state):
        """Resume at this position. Raises TrackError if the state belongs to other data."""
        if state["samples"] != self.samples or not 0 <= state["position"] < self.samples:
            of_state = f"{state['samples']} images, position {state['position']}"
            raise TrackError(
                f"the state belongs to a data set of {of_state}, but this data set has {self.samples} images"
            )
        self.epoch, self.position = state["epoch"], state["position"]


def check(partitions, partition):
    """Raise TrackError for a partition that does not exist."""
    if not 0 <= partition < partitions:
        raise TrackError(
            f"partition {partition} of {partitions} does not exist: partitions are numbered from 0 to {partitions - 1}"
        )
