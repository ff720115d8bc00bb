"""How its known answers are proved right or wrong: see answers.proofs."""

import numpy

from answers.proofs import Case, Run

EXPECTED = {"prediction_error": (1, 100)}  # percent
WHOLE = ("updates",)
# Chainer's parts are equal: one image is left over
CASES = {"pytorch": Case("2,2,1", 23, 4, 25), "chainer": Case("1,0,1", 25, 4, 28)}

RUNS = {
    "hanging.py": Run("hanging.py", 3, replaced=("2.0 /", "2000.0 /"))  # losses that 16 bits don't hold
}


def speed_up(chance):
    return {"single": chance.uniform(20, 900), "several": chance.uniform(20, 5000)}


def efficiency(chance):
    return speed_up(chance) | {"workers": chance.randint(1, 16)}


def waiting(chance):
    steps, ranks = chance.randint(1, 20), chance.randint(1, 6)
    return {"arrivals": numpy.array([[step + chance.uniform(0, 0.3) for _ in range(ranks)] for step in range(steps)])}


def updates(chance):
    batchsize, workers = chance.choice((1, 8, 32, 100)), chance.randint(1, 16)
    images = chance.choice((chance.randint(1, 5000), chance.randint(1, 20) * batchsize * workers))
    return {"images": images, "batchsize": batchsize, "workers": workers, "epochs": chance.randint(1, 10)}


def learning_rate(chance):
    warmup = chance.randint(1, 40)
    update = chance.choice((0, warmup, chance.randint(0, 2 * warmup)))
    return {"update": update, "base": chance.uniform(0.001, 0.1), "workers": chance.randint(1, 16), "warmup": warmup}


INPUTS = {
    "speed_up": speed_up,
    "efficiency": efficiency,
    "waiting": waiting,
    "updates": updates,
    "learning_rate": learning_rate,
}
