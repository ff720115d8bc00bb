"""The slowest of N workers: a step of data-parallel training ends when the last worker has computed its gradients.

The mean of the measured steps is therefore not enough. The expected maximum of N steps is needed, from their order
statistics.
"""

import functools

import numpy

TAIL = 0.1  # the share of the longest steps from which the tail is extrapolated
GRID = 400  # points at which the distribution of the maximum is evaluated


@functools.lru_cache(maxsize=4096)
def weights(count, ranks):
    """Return the weight of each of `count` sorted steps in the expected maximum of `ranks` draws: an array whose sum is
    1 without a tail.

    E[max] is the integral of the quantile at v ** (1 / N) over v from 0 to 1 (David and Nagaraja, Order Statistics,
    2003, section 3.1). Between two order statistics, a quantile is interpolated linearly. Beyond the longest tenth, an
    exponential tail with the mean of that tenth is used, because the maximum of thousands exceeds all measured values
    (peaks over threshold: Pickands, Annals of Statistics 3, 1975). Both are sums of sorted steps.
    """
    found, longest = numpy.zeros(count), max(1, round(TAIL * count))
    threshold, share = max(0, count - longest - 1), longest / count
    beyond = -numpy.expm1(numpy.log((numpy.arange(GRID) + 0.5) / GRID) / ranks)  # 1 - v ** (1 / N), exact for large N
    logarithms = numpy.log(share / beyond[beyond < share])
    found[count - longest :] += logarithms.sum() / longest
    found[threshold] += (1 - logarithms).sum()
    places = numpy.clip((1 - beyond[beyond >= share]) * count - 0.5, 0, threshold)
    below = places.astype(int)
    numpy.add.at(found, below, 1 - places + below)
    numpy.add.at(found, numpy.minimum(below + 1, count - 1), places - below)
    return found / GRID


def expected_maximum(sample, ranks):
    """Return the expected seconds of the slowest of `ranks` workers (a number, or a list of numbers) whose steps are
    drawn from `sample`."""
    ordered = numpy.sort(numpy.asarray(sample, float))
    found = [float(weights(len(ordered), float(number)) @ ordered) for number in numpy.atleast_1d(ranks)]
    return numpy.array(found) if numpy.ndim(ranks) else found[0]


def resample(sample, random):
    """Return a sample of the same size as `sample`, drawn from it with replacement in blocks, because neighbouring
    steps resemble each other.

    random: a numpy Generator. The blocks have n ** (1 / 3) steps (Künsch, Annals of Statistics 17, 1989).
    """
    sample = numpy.asarray(sample, float)
    block = max(1, round(len(sample) ** (1 / 3)))
    starts = random.integers(0, len(sample), -(-len(sample) // block))
    return sample[(starts[:, None] + numpy.arange(block)) % len(sample)].ravel()[: len(sample)]
