"""How its known answers are proved right or wrong: see answers.proofs."""

import numpy

from answers.proofs import Case

EXPECTED = {"prediction_faster": (1, 50)}
CASES = {"pytorch": Case("2,1,0", 200, 8)}  # as many images as slow_loading.py takes


def who_waits(chance):
    ranks = range(chance.randint(2, 6))
    return {"waits": {rank: {other: chance.uniform(0, 0.02) for other in ranks if other != rank} for rank in ranks}}


def waiting_share(chance):
    rounds, ranks = chance.randint(1, 20), chance.randint(1, 6)
    begin = numpy.array([[row + chance.uniform(0, 0.3) for _ in range(ranks)] for row in range(rounds)])
    return {
        "begin": begin,
        "end": numpy.array([[row.max() + chance.uniform(0.001, 0.2) for _ in range(ranks)] for row in begin]),
    }


def overlap(chance):
    return {"compute": _spans(chance, chance.randint(1, 8)), "communication": _spans(chance, chance.randint(1, 8))}


def _spans(chance, count):
    moments = sorted(chance.uniform(0, 1) for _ in range(2 * count))
    return list(zip(moments[::2], moments[1::2]))


INPUTS = {"who_waits": who_waits, "waiting_share": waiting_share, "overlap": overlap}
