"""The cost of failures: the mean time between failures of N nodes, the best checkpoint interval, and the useful share
of the time."""

import math

import numpy


def mean_time(of_node, nodes):
    """Return the seconds between failures of any of `nodes` nodes, if each fails at random once in `of_node`
    seconds."""
    return of_node / nodes


def young(checkpoint, between):
    """Return the seconds of work between checkpoints of `checkpoint` seconds, with `between` seconds between failures:
    sqrt(2 C M) (Young, CACM 17, 1974)."""
    return math.sqrt(2 * checkpoint * between)


def daly(checkpoint, between):
    """Return the same to a higher order, also for frequent failures (Daly, Future Generation Computer Systems 22, 2006,
    equation 37)."""
    if checkpoint >= 2 * between:
        return between
    ratio = checkpoint / (2 * between)
    return math.sqrt(2 * checkpoint * between) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint


def useful_share(interval, checkpoint, between, restart=0.0):
    """Return the share of the time that goes into work which is not lost: `interval` seconds of work between
    checkpoints, `restart` seconds after a failure.

    Failures occur at random, on average every `between` seconds, also during checkpoints and restarts (Daly 2006,
    equation 20).
    """
    spent = between * math.exp(restart / between) * math.expm1((interval + checkpoint) / between)
    return interval / spent


def simulated_share(interval, checkpoint, between, restart=0.0, segments=20_000, seed=0):
    """Return the same by simulation of `segments` intervals: a failure before the end of a checkpoint discards its
    interval."""
    random = numpy.random.default_rng(seed)
    need, spent = interval + checkpoint, 0.0
    for _ in range(segments):
        while (until := random.exponential(between)) < need:
            spent += until
            while (again := random.exponential(between)) < restart:  # it fails during the restart, too
                spent += again
            spent += restart
        spent += need
    return segments * interval / spent
