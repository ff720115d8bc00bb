"""The answers to the gaps in notebook 02_multi_gpu: inputs, what is right, and typical mistakes."""

import numpy

from grader.instructors.notebook_answers import Function


def _rates(chance):
    """The throughputs of one worker and of several: mostly faster, in one call slower, in one more than `workers` times
    as fast."""
    single, workers = chance.uniform(40, 400), chance.randint(3, 9)
    return {
        "single": single,
        "several": single * chance.turn([0.6, 0.4, 1.1, 0.8, 0.1, 0.5]) * workers * chance.uniform(0.95, 1.05),
        "workers": workers,
    }


def _two_rates(chance):
    return {name: rate for name, rate in _rates(chance).items() if name != "workers"}


def _arrivals(chance):
    """When each rank reaches the all-reduce, for each step. The rank that comes last in a step comes first in the
    next."""
    ranks, steps = chance.turn([3, 4, 2]), chance.turn([7, 5, 8, 6])
    return {
        "arrivals": numpy.array(
            [
                [step + chance.uniform(0, 0.2) + 0.2 * (rank == step % ranks) for rank in range(ranks)]
                for step in range(steps)
            ]
        )
    }


def _epochs(chance):
    """A training in which the last update of an epoch has all images, all but one, a single one of more than ten
    thousand, the only ones, no whole batch for one worker, or half of the images: then batches are whole, and all
    workers have as many. The number of full updates is odd, since `round` takes 2.5 for 2, but 3.5 for 4."""
    batchsize, workers = (
        chance.turn([16, 4096, 16, 32, 16, 32]),
        chance.turn([*[chance.randint(3, 9)] * 5, chance.choice([4, 6, 8])]),
    )
    total = batchsize * workers
    whole, rest = chance.turn(
        [(1, 0), (1, 1), (1, total - 1), (0, batchsize - 1), (1, total - batchsize - 1), (1, total // 2)]
    )
    return {
        "images": total * (2 * chance.randint(1, 9) + 1) * whole + rest,
        "batchsize": batchsize,
        "workers": workers,
        "epochs": chance.randint(3, 6),
    }


def _rate_of(chance):
    """The first update, one in the warm-up, its end, or one after it. `warmup` does not divide what the rate rises
    by."""
    warmup = chance.randint(4, 16)
    update = chance.turn(
        [chance.randint(1, warmup - 2), warmup + chance.randint(1, 9), 0, warmup - 1, warmup, 3 * warmup + 1]
    )
    return {
        "update": update,
        "base": chance.uniform(0.001, 0.1),
        "workers": chance.choice([workers for workers in range(3, 17) if (workers - 1) % warmup]),
        "warmup": warmup,
    }


def _efficiency(single, several, workers):
    return several / single / workers


def _waits(arrivals, other=numpy.max):
    return other(arrivals, axis=1)[:, None] - arrivals


def _updates(images, batchsize, workers, epochs):
    return -(-images // (batchsize * workers)) * epochs


def _learning_rate(update, base, workers, warmup):
    return base * (1 + (workers - 1) * min(1, update / warmup))


ANSWERS = {
    "speed_up": Function(
        _two_rates,
        lambda single, several: several / single,
        {
            "that is how many times as long it takes; the other way round": lambda single, several: single / several,
            "that is the difference of the throughputs": lambda single, several: several - single,
            "that is how much faster; twice as fast is a speed-up of 2, not of 1": lambda single, several: (
                several / single - 1
            ),
            "that is in percent; twice as fast is a speed-up of 2": lambda single, several: 100 * several / single,
        },
    ),
    "efficiency": Function(
        _rates,
        _efficiency,
        {
            "that is the speed-up; divide it by what it ideally is": lambda single, several, workers: several / single,
            "the workers are on the wrong side: ideally, N workers have N times the throughput of one": (
                lambda single, several, workers: several * workers / single
            ),
            "that is in percent; 1 is all of the ideal speed-up": lambda single, several, workers: (
                100 * _efficiency(single, several, workers)
            ),
            "it is cut off at 1, and a measured efficiency can be above": lambda single, several, workers: min(
                1, _efficiency(single, several, workers)
            ),
            "that is the part that was lost": lambda single, several, workers: (
                1 - _efficiency(single, several, workers)
            ),
            "upside down: the efficiency is below 1 if something is lost": lambda single, several, workers: (
                1 / _efficiency(single, several, workers)
            ),
        },
    ),
    "waiting": Function(
        _arrivals,
        lambda arrivals: _waits(arrivals).mean(axis=0),
        {
            "that is how much later each rank comes than the first one; it waits for the last": lambda arrivals: (
                -_waits(arrivals, numpy.min).mean(axis=0)
            ),
            "the sign is wrong: a rank waits from its own arrival until that of the last one": lambda arrivals: (
                -_waits(arrivals).mean(axis=0)
            ),
            "those are milliseconds; seconds were asked for": lambda arrivals: 1000 * _waits(arrivals).mean(axis=0),
            "that is the sum over the steps; the mean was asked for": lambda arrivals: _waits(arrivals).sum(axis=0),
            "that is the mean over all ranks; each rank has a number of its own": (
                lambda arrivals: _waits(arrivals).mean()
            ),
            "that has a number for each step: take the mean over the steps, axis 0": (
                lambda arrivals: _waits(arrivals).mean(axis=1)
            ),
            (
                "that is measured against one rank in all steps; the last rank may be another one in each step"
            ): lambda arrivals: arrivals.mean(axis=0).max() - arrivals.mean(axis=0),
        },
    ),
    "updates": Function(
        _epochs,
        _updates,
        {
            "an epoch's last images are left out: with fewer than a whole batch, they make an update, too": (
                lambda images, batchsize, workers, epochs: images // (batchsize * workers) * epochs
            ),
            "where the images fill all updates of an epoch, there is none more: round up, instead of adding 1": (
                lambda images, batchsize, workers, epochs: (images // (batchsize * workers) + 1) * epochs
            ),
            "each epoch ends with an update of its own: round up first, then multiply by the epochs": (
                lambda images, batchsize, workers, epochs: -(-images * epochs // (batchsize * workers))
            ),
            "those are the updates of one worker alone: all workers together take `workers` times as many images": (
                lambda images, batchsize, workers, epochs: _updates(images, batchsize, 1, epochs)
            ),
            "the updates of all workers are added up; they all make the same update together": (
                lambda images, batchsize, workers, epochs: _updates(images, batchsize, workers, epochs) * workers
            ),
            "it is rounded to the nearest; the last images of an epoch make an update, however few": (
                lambda images, batchsize, workers, epochs: round(images / (batchsize * workers)) * epochs
            ),
            "those are the updates of one epoch": lambda images, batchsize, workers, epochs: _updates(
                images, batchsize, workers, 1
            ),
            (
                "the number is not whole: the last images of an epoch make an update, too"
            ): lambda images, batchsize, workers, epochs: images / (batchsize * workers) * epochs,
        },
    ),
    "learning_rate": Function(
        _rate_of,
        _learning_rate,
        {
            "the rate goes on rising after the warm-up": lambda update, base, workers, warmup: (
                base * (1 + (workers - 1) * update / warmup)
            ),
            "that is the scaled rate from the first update on: there is no warm-up": (
                lambda update, base, workers, warmup: base * workers
            ),
            "the warm-up begins at 0; it is to begin at `base`": lambda update, base, workers, warmup: (
                base * workers * min(1, update / warmup)
            ),
            "updates are counted from 0: update 0 has the rate `base`, and update `warmup` the whole one": (
                lambda update, base, workers, warmup: base * (1 + (workers - 1) * min(1, (update + 1) / warmup))
            ),
            "the rate jumps at the end of the warm-up; it is to rise in a straight line": (
                lambda update, base, workers, warmup: base if update < warmup else base * workers
            ),
            "the rate is that of one worker": lambda update, base, workers, warmup: base,
            (
                "it rises to base * (1 + workers); the end of the warm-up is base * workers"
            ): lambda update, base, workers, warmup: base * (1 + workers * min(1, update / warmup)),
        },
    ),
}
