"""Batches for Chainer's iterators and updaters: enlarged images, and an order of samples that a resumed run can
continue."""

import numpy
from chainer.dataset import concat_examples
from chainer.iterators import OrderSampler

from handson.training.data import enlarge


class Shuffle(OrderSampler):
    """Return an order for each epoch that depends only on `seed` and the previous epoch's order, so that a resumed run
    shuffles in the same way."""

    def __init__(self, seed):
        self.seed = seed

    def __call__(self, current_order, current_position):
        random = numpy.random.RandomState([self.seed, *current_order[:8]])
        return random.permutation(len(current_order))


class Enlarge:
    """Convert a list of (image, label) to arrays on the device: images (N, 3, size, size), labels (N) int32."""

    def __init__(self, size):
        self.size = size

    def __call__(self, batch, device):
        images, labels = concat_examples(batch, device)
        return enlarge(images, self.size), labels.astype("int32")
