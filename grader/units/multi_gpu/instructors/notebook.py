"""The answers to the gaps in notebook 02_multi_gpu: inputs, what is right, and typical mistakes. recorded.json is made of them."""

import numpy

from grader.instructors.notebook_answers import Function


def _arrivals(chance, step):
    """The times at which three ranks reach the all-reduce of a step. The last rank differs from step to step."""
    return [step + chance.uniform(0, 0.2) for _ in range(3)]


def _rate_of(chance, warmup):
    """A moment within the warm-up or, in one call of three, after it."""
    update = warmup + chance.randint(1, 9) if chance.turn([False, True, False]) else chance.randint(1, warmup - 1)
    return {"update": update, "base": chance.uniform(0.001, 0.1), "workers": chance.randint(2, 16), "warmup": warmup}


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
        lambda chance: {"single": chance.uniform(40, 400), "several": chance.uniform(400, 900)},
        lambda single, several: several / single,
        {
            "that is how many times as long it takes; the other way round": lambda single, several: single / several,
            "that is the difference of the throughputs": lambda single, several: several - single,
            "that is how much faster; twice as fast is a speed-up of 2, not of 1": lambda single, several: several / single - 1,
        },
    ),
    "efficiency": Function(
        lambda chance: {"single": chance.uniform(40, 400), "several": chance.uniform(400, 900), "workers": chance.randint(3, 9)},
        _efficiency,
        {
            "that is the speed-up; divide it by what it ideally is": lambda single, several, workers: several / single,
            "the workers are on the wrong side: ideally, N workers have N times the throughput of one": lambda single, several, workers: (
                several * workers / single
            ),
            "that is the part that was lost": lambda single, several, workers: 1 - _efficiency(single, several, workers),
            "upside down: the efficiency is 1 at best": lambda single, several, workers: 1 / _efficiency(single, several, workers),
        },
    ),
    "waiting": Function(
        lambda chance: {"arrivals": numpy.array([_arrivals(chance, step) for step in range(7)])},
        lambda arrivals: _waits(arrivals).mean(axis=0),
        {
            "that is how much later each rank comes than the first one; it waits for the last": lambda arrivals: -_waits(arrivals, numpy.min).mean(axis=0),
            "the sign is wrong: a rank waits from its own arrival until that of the last one": lambda arrivals: -_waits(arrivals).mean(axis=0),
            "that is the sum over the steps; the mean was asked for": lambda arrivals: _waits(arrivals).sum(axis=0),
            "that is the mean over all ranks; each rank has a number of its own": lambda arrivals: _waits(arrivals).mean(),
            "that has a number for each step: take the mean over the steps, axis 0": lambda arrivals: _waits(arrivals).mean(axis=1),
            "that is measured against one rank in all steps; the last rank may be another one in each step": lambda arrivals: (
                arrivals.mean(axis=0).max() - arrivals.mean(axis=0)
            ),
        },
    ),
    "updates": Function(
        lambda chance: {
            "images": 32 * 9 * chance.randint(3, 20) + chance.randint(33, 200),
            "batchsize": chance.turn([16, 32]),
            "workers": chance.randint(3, 9),
            "epochs": chance.randint(3, 6),
        },
        _updates,
        {
            "an epoch's last images are left out: with fewer than a whole batch, they make an update, too": lambda images, batchsize, workers, epochs: (
                images // (batchsize * workers) * epochs
            ),
            "those are the updates of one worker alone: all workers together take `workers` times as many images": (
                lambda images, batchsize, workers, epochs: _updates(images, batchsize, 1, epochs)
            ),
            "the updates of all workers are added up; they all make the same update together": lambda images, batchsize, workers, epochs: (
                _updates(images, batchsize, workers, epochs) * workers
            ),
            "those are the updates of one epoch": lambda images, batchsize, workers, epochs: _updates(images, batchsize, workers, 1),
            "the number is not whole: the last images of an epoch make an update, too": lambda images, batchsize, workers, epochs: (
                images / (batchsize * workers) * epochs
            ),
        },
    ),
    "learning_rate": Function(
        lambda chance: _rate_of(chance, chance.randint(2, 16)),
        _learning_rate,
        {
            "the rate goes on rising after the warm-up": lambda update, base, workers, warmup: base * (1 + (workers - 1) * update / warmup),
            "that is the scaled rate from the first update on: there is no warm-up": lambda update, base, workers, warmup: base * workers,
            "the warm-up begins at 0; it is to begin at `base`": lambda update, base, workers, warmup: base * workers * min(1, update / warmup),
            "the rate jumps at the end of the warm-up; it is to rise in a straight line": lambda update, base, workers, warmup: (
                base if update < warmup else base * workers
            ),
            "the rate is that of one worker": lambda update, base, workers, warmup: base,
            "it rises to base * (1 + workers); the end of the warm-up is base * workers": lambda update, base, workers, warmup: (
                base * (1 + workers * min(1, update / warmup))
            ),
        },
    ),
}
