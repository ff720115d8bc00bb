"""What failures cost: the mean time between failures of N nodes, how often to write a checkpoint, and the useful share
of the time."""

import math

import numpy


def mean_time(of_node, nodes):
    """Seconds between failures of any of `nodes` nodes, each of which fails once in `of_node` seconds, at random."""
    return of_node / nodes


def young(checkpoint, between):
    """Seconds of work between checkpoints of `checkpoint` seconds, with `between` seconds between failures: sqrt(2 C M)
    (Young, CACM 17, 1974)."""
    return math.sqrt(2 * checkpoint * between)


def daly(checkpoint, between):
    """The same to a higher order, also for frequent failures (Daly, Future Generation Computer Systems 22, 2006,
    equation 37)."""
    if checkpoint >= 2 * between:
        return between
    ratio = checkpoint / (2 * between)
    return math.sqrt(2 * checkpoint * between) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint


def useful_share(interval, checkpoint, between, restart=0.0):
    """The share of the time in which work is done that stays done: `interval` seconds of work between checkpoints,
    `restart` seconds after a failure.

    Failures come at random with `between` seconds in the mean, also during checkpoints and restarts (Daly 2006,
    equation 20).
    """
    spent = between * math.exp(restart / between) * math.expm1((interval + checkpoint) / between)
    return interval / spent


def simulated_share(interval, checkpoint, between, restart=0.0, segments=20_000, seed=0):
    """The same by simulation of `segments` intervals: a failure before the end of a checkpoint throws its interval
    away."""
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
