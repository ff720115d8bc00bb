"""The slowest of N workers: a step of data-parallel training ends when the last worker has computed its gradients.

So the mean of the measured steps says too little. What counts is the expected maximum of N of them, by their order statistics.
"""

import numpy

TAIL = 0.1  # the share of the steps, the longest, from which the tail beyond all measured steps follows
GRID = 400  # points at which the distribution of the maximum is evaluated


def quantiles(sample, shares):
    """The seconds that a share of all steps does not exceed, for each of `shares` (any shape, 0 to 1).

    sample: measured steps. Its order statistics, joined by lines; beyond the longest tenth, an exponential tail with the mean of that tenth,
    as a maximum of thousands lies beyond anything measured (peaks over threshold: Pickands, Annals of Statistics 3, 1975).
    """
    ordered, beyond = numpy.sort(numpy.asarray(sample, float)), 1 - numpy.asarray(shares, float)
    count = len(ordered)
    longest = max(1, round(TAIL * count))
    if count < 2:
        return numpy.full_like(beyond, ordered[0])
    threshold = ordered[count - longest - 1] if longest < count else ordered[0]
    excess = (ordered[count - longest :] - threshold).mean()
    share = longest / count
    below = numpy.interp(1 - beyond, (numpy.arange(count) + 0.5) / count, ordered)
    tail = threshold + excess * numpy.log(share / numpy.maximum(beyond, 1e-300))
    return numpy.where(beyond < share, tail, numpy.minimum(below, threshold))


def expected_maximum(sample, ranks):
    """The expected seconds of the slowest of `ranks` workers (a number, or an array of them) whose steps are drawn from `sample`.

    E[max] is the integral of the quantile at v ** (1 / N) over v from 0 to 1 (David and Nagaraja, Order Statistics, 2003, section 3.1).
    """
    ranks = numpy.asarray(ranks, float)
    middles = (numpy.arange(GRID) + 0.5) / GRID
    beyond = -numpy.expm1(numpy.log(middles) / ranks[..., None])  # 1 - v ** (1 / N), exact for large N
    return quantiles(sample, 1 - beyond).mean(axis=-1)


def resample(sample, random):
    """As many steps as `sample` has, drawn from it with replacement, in blocks, since neighbouring steps resemble each other.

    random: a numpy Generator. The blocks have n ** (1 / 3) steps (Künsch, Annals of Statistics 17, 1989).
    """
    sample = numpy.asarray(sample, float)
    block = max(1, round(len(sample) ** (1 / 3)))
    starts = random.integers(0, len(sample), -(-len(sample) // block))
    return sample[(starts[:, None] + numpy.arange(block)) % len(sample)].ravel()[: len(sample)]
