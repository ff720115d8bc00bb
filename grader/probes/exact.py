"""Numbers for ranks to add up."""

import numpy


def numbers(seed, rank, length):
    """Return a rank's float32 array. Sums of a few are exact in any order, but not in half precision or in an integer
    type."""
    chance = numpy.random.RandomState((seed + 31 * rank) % 2**32)
    return (chance.randint(-999, 1000, length) + chance.randint(-999, 1000, length) / 1024).astype("float32")
