"""The answers to the gaps in notebook 02_multi_gpu: inputs, what is right, and typical mistakes."""

import numpy

from grader.instructors.notebook_answers import Function


def _rates(chance):
    """Return the throughputs of one worker and of several. Several workers are faster in most calls, slower in one
    call, and more than `workers` times as fast in another."""
    single, workers = chance.uniform(40, 400), chance.randint(3, 9)
    return {
        "single": single,
        "several": single * chance.turn([0.6, 0.4, 1.1, 0.8, 0.1, 0.5]) * workers * chance.uniform(0.95, 1.05),
        "workers": workers,
    }


def _two_rates(chance):
    return {name: rate for name, rate in _rates(chance).items() if name != "workers"}


def _arrivals(chance):
    """Return when each rank reaches the all-reduce, for each step. The rank that comes last in a step comes first in
    the next step."""
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
    """Return a training run. In turns, the last update of an epoch has a full batch; all images of a batch but one;
    a single image of more than ten thousand; the only images; no whole batch for one worker; or half of the images,
    in whole batches that are split equally. The number of full updates is odd, because `round` turns 2.5 into 2 but
    3.5 into 4."""
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
    """Return the number of an update: in turns the first update, one in the warm-up, the end of the warm-up, or a
    later one. `warmup` does not divide the increase of the rate."""
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
            (
                "`speed_up` is upside down: divide the throughput of several workers by that of one"
            ): lambda single, several: single / several,
            "`speed_up` returns the difference of the throughputs, not their ratio": lambda single, several: (
                several - single
            ),
            "`speed_up` subtracts 1, but twice as fast is a speed-up of 2": lambda single, several: (
                several / single - 1
            ),
            "`speed_up` returns percent, but twice as fast is a speed-up of 2": lambda single, several: (
                100 * several / single
            ),
        },
    ),
    "efficiency": Function(
        _rates,
        _efficiency,
        {
            "`efficiency` returns the speed-up: divide it by the ideal speed-up": lambda single, several, workers: (
                several / single
            ),
            (
                "`efficiency` multiplies by `workers`: divide by it, since N workers ideally have N times the"
                " throughput of one"
            ): (lambda single, several, workers: several * workers / single),
            (
                "`efficiency` returns percent, but the ideal speed-up has the efficiency 1"
            ): lambda single, several, workers: 100 * _efficiency(single, several, workers),
            "`efficiency` is cut off at 1, but a measured efficiency can be above 1": lambda single, several, workers: (
                min(1, _efficiency(single, several, workers))
            ),
            (
                "`efficiency` returns the share that is lost, not the share that is reached"
            ): lambda single, several, workers: 1 - _efficiency(single, several, workers),
            "`efficiency` is upside down: it is below 1 if something is lost": lambda single, several, workers: (
                1 / _efficiency(single, several, workers)
            ),
        },
    ),
    "waiting": Function(
        _arrivals,
        lambda arrivals: _waits(arrivals).mean(axis=0),
        {
            "`waiting` measures from the first rank: a rank waits for the last one": lambda arrivals: (
                -_waits(arrivals, numpy.min).mean(axis=0)
            ),
            (
                "`waiting` has the wrong sign: a rank waits from its own arrival to that of the last rank"
            ): lambda arrivals: -_waits(arrivals).mean(axis=0),
            "`waiting` returns milliseconds: return seconds": lambda arrivals: 1000 * _waits(arrivals).mean(axis=0),
            "`waiting` sums over the steps: return the mean": lambda arrivals: _waits(arrivals).sum(axis=0),
            "`waiting` averages over all ranks: return one number for each rank": (
                lambda arrivals: _waits(arrivals).mean()
            ),
            "`waiting` returns one number for each step: average over the steps, axis 0": (
                lambda arrivals: _waits(arrivals).mean(axis=1)
            ),
            (
                "`waiting` compares with the same rank in all steps, but the last rank may differ from step to step"
            ): lambda arrivals: arrivals.mean(axis=0).max() - arrivals.mean(axis=0),
        },
    ),
    "updates": Function(
        _epochs,
        _updates,
        {
            "`updates` leaves out the last images of an epoch: an incomplete batch gives an update, too": (
                lambda images, batchsize, workers, epochs: images // (batchsize * workers) * epochs
            ),
            (
                "`updates` always adds 1, but there is no extra update if the batches divide the images evenly: round"
                " up instead"
            ): (lambda images, batchsize, workers, epochs: (images // (batchsize * workers) + 1) * epochs),
            (
                "`updates` rounds up only once, after multiplying by the epochs: each epoch ends with an update, so"
                " round up first"
            ): (lambda images, batchsize, workers, epochs: -(-images * epochs // (batchsize * workers))),
            (
                "`updates` counts those of a single worker: all workers together use `workers` times as many images"
                " in an update"
            ): (lambda images, batchsize, workers, epochs: _updates(images, batchsize, 1, epochs)),
            "`updates` adds up the updates of all workers, but an update is made by all workers together": (
                lambda images, batchsize, workers, epochs: _updates(images, batchsize, workers, epochs) * workers
            ),
            "`updates` rounds to the nearest number: round up, since even a single image left over gives an update": (
                lambda images, batchsize, workers, epochs: round(images / (batchsize * workers)) * epochs
            ),
            "`updates` counts those of one epoch only": lambda images, batchsize, workers, epochs: _updates(
                images, batchsize, workers, 1
            ),
            (
                "`updates` is not a whole number: round up, since the last images of an epoch give an update, too"
            ): lambda images, batchsize, workers, epochs: images / (batchsize * workers) * epochs,
        },
    ),
    "learning_rate": Function(
        _rate_of,
        _learning_rate,
        {
            "`learning_rate` keeps rising after the warm-up": lambda update, base, workers, warmup: (
                base * (1 + (workers - 1) * update / warmup)
            ),
            "`learning_rate` returns the scaled rate from the first update on: the warm-up is missing": (
                lambda update, base, workers, warmup: base * workers
            ),
            "`learning_rate` starts the warm-up at 0: it must start at `base`": lambda update, base, workers, warmup: (
                base * workers * min(1, update / warmup)
            ),
            (
                "`learning_rate` is one update ahead: updates count from 0, so update 0 has the rate `base`, and update"
                " `warmup` has the full rate"
            ): (lambda update, base, workers, warmup: base * (1 + (workers - 1) * min(1, (update + 1) / warmup))),
            "`learning_rate` jumps at the end of the warm-up: it must rise in a straight line": (
                lambda update, base, workers, warmup: base if update < warmup else base * workers
            ),
            (
                "`learning_rate` returns the rate of one worker: scale it by `workers`"
            ): lambda update, base, workers, warmup: base,
            (
                "`learning_rate` rises to base * (1 + workers), but the warm-up ends at base * workers"
            ): lambda update, base, workers, warmup: base * (1 + workers * min(1, update / warmup)),
        },
    ),
}
