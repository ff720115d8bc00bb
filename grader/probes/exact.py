"""Numbers for ranks to add up."""

import numpy


def numbers(seed, rank, length):
    """A rank's float32 array: whole numbers, whose sums are exact in any order."""
    return numpy.random.RandomState((seed + 31 * rank) % 2**32).randint(-999, 1000, length).astype("float32")
