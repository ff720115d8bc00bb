"""The numbers that ranks start with, for the probes, and for the checks that know their sums."""

import numpy

RATE = 0.125  # the learning rate of the parameter server; its products with whole numbers are exact
LENGTH = 5  # numbers in its `parameters`, before the last one


def numbers(seed, rank, length):
    """A rank's float32 array: whole numbers, whose sums are exact in any order."""
    return numpy.random.RandomState((seed + 31 * rank) % 2**32).randint(-999, 1000, length).astype("float32")
