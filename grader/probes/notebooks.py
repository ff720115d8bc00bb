"""Probes for the gaps of notebooks: functions are called with numbers chosen anew, and predictions are read."""

import random
import re

import numpy

from grader.box.rank import Wrong
from grader.probes.student import Student

CALLS = 6
LARGEST = 10_000  # numbers that an answer may have
HEAVY = ("handson", "grader", "torch", "pytorch_pfn_extras", "chainer")


def value(rank, ranks, source, case):
    """What a gap's code returns, for each of the inputs that case["seed"] chooses: {"values": [array, ...]}."""
    student = Student(_light(source))
    if not student.returns:
        raise Wrong("your code returns nothing: a function needs a `return`")
    return {"values": [_numbers(student.run(**given).returned) for given in inputs(case)]}


def prediction(rank, ranks, source, case):
    """The number that a gap's code gives to the name case["name"]."""
    found = Student(_light(source)).run()[case["name"]]
    number = _numbers(found)
    return {"value": float(number)} if number.ndim == 0 else _not_a_number(found)


def word(rank, ranks, source, case):
    """The text that a gap's code gives to the name case["name"]."""
    found = Student(_light(source)).run()[case["name"]]
    if not isinstance(found, str):
        raise Wrong(f"`{case['name']}` should be a word in quotes")
    return {"value": found[:100]}


def inputs(case):
    """The arguments that a gap's function gets, by name: a dictionary for each call."""
    chance = Chance(case["seed"])
    calls = []
    for chance.call in range(CALLS):
        calls.append(INPUTS[case["inputs"]](chance))
    return calls


class Chance(random.Random):
    """Random numbers for several calls. What matters for a misconception is no matter of luck: `turn` takes each choice in its turn."""

    call = 0

    def turn(self, choices):
        return choices[self.call % len(choices)]


def _light(source):
    """The source without what only other cells import: to load torch takes longer than the check."""
    text = source["text"]
    for name in HEAVY:
        if name not in source["code"]:
            text = re.sub(rf"^(from|import) {name}\b.*$", "", text, flags=re.MULTILINE)
    return source | {"text": text}


def _numbers(found):
    """A student's answer as an array of numbers. Raises Wrong."""
    try:
        if found is None or isinstance(found, (str, bytes)):
            return _not_a_number(found)
        array = numpy.asarray(list(found.values()) if isinstance(found, dict) else found, dtype="float64")
    except (TypeError, ValueError):
        return _not_a_number(found)
    if array.size > LARGEST:
        raise Wrong(f"your code gives {array.size:,} numbers")
    return array


def _not_a_number(found):
    what = "`...`" if found is ... else "None: is there a `return`?" if found is None else f"{type(found).__name__} {str(found)[:60]!r}"
    raise Wrong(f"your code gives no number, but {what}")


def _rates(chance):
    """Batch size -> images/s: rising, then level with a little up and down."""
    top = chance.uniform(300, 900)
    rates = {size: top * size / (size + chance.uniform(2, 5)) for size in (1, 2, 4, 8)}
    rates |= {size: top * chance.uniform(0.93, 1.0) for size in (16, 32, 64, 128)}
    return rates | {64: top * 1.02, 128: top * 0.7}


def _arrivals(chance, step):
    """When three ranks come to the all-reduce of a step; now this one is last, now that one."""
    return [step + chance.uniform(0, 0.2) for _ in range(3)]


def _waits(chance):
    """How long each of four ranks waits for each other one: the one with the longest single wait is not the one that waits the most."""
    ranks = list(range(4))
    chance.shuffle(ranks)
    waits = {rank: {other: chance.uniform(0, 0.002) for other in ranks if other != rank} for rank in ranks}
    most, longest = ranks[:2]
    waits[most] = {other: chance.uniform(0.01, 0.015) for other in waits[most]}
    waits[longest][chance.choice(ranks[2:])] = 0.02
    return {"waits": waits}


def _meetings(chance, collective):
    """When three ranks come to a collective and leave it."""
    begin = [collective + chance.uniform(0, 0.3) for _ in range(3)]
    return begin, [max(begin) + chance.uniform(0.01, 0.2) for _ in range(3)]


def _spans(chance, count):
    """Spans that don't overlap each other."""
    edges = sorted(chance.uniform(0, 1) for _ in range(2 * count))
    return list(zip(edges[::2], edges[1::2]))


def _rate_of(chance, warmup):
    """A moment within the warm-up or, in one call of three, after it."""
    update = warmup + chance.randint(1, 9) if chance.turn([False, True, False]) else chance.randint(1, warmup - 1)
    return {"update": update, "base": chance.uniform(0.001, 0.1), "workers": chance.randint(2, 16), "warmup": warmup}


def _parts(chance, ranks):
    """How many images each rank has, and how many of them are correct."""
    images = [chance.randint(10, 99) for _ in range(ranks)]
    return {"correct": [chance.randint(0, of_rank) for of_rank in images], "images": images}


def _throughputs(chance):
    """Workers -> images/s, not in order."""
    single = chance.uniform(40, 400)
    return {workers: single * workers * chance.uniform(0.4, 1) for workers in (8, 2, 4)} | {1: single}


def _table(chance):
    """A scaling table, and an efficiency between those of its rows; the efficiency falls, but for one row."""
    efficiencies = {1: 1, 2: chance.uniform(0.9, 0.99), 4: chance.uniform(0.7, 0.75), 8: chance.uniform(0.8, 0.85), 16: chance.uniform(0.3, 0.5)}
    table = [[workers, 50.0 * workers * one, workers * one, one] for workers, one in efficiencies.items()]
    return {"table": table, "least": chance.turn([0.65, 0.78, 0.87])}


INPUTS = {
    "workers": lambda chance: {"select": chance.randint(1, 9), "mpiprocs": chance.randint(2, 8)},
    "throughput": lambda chance: {"batchsize": chance.randint(2, 64), "step_seconds": [chance.uniform(0.01, 0.5) for _ in range(chance.randint(2, 9))]},
    "smallest_batch": lambda chance: {"rates": _rates(chance), "share": chance.turn([0.4, 0.5, 0.6])},
    "limit": lambda chance: {
        "seconds": {part: chance.uniform(0.1, 2) for part in ("load", "forward", "backward", "optimize")},
        "part": chance.turn(["load", "forward", "backward", "optimize"]),
    },
    "speed_up": lambda chance: {"single": chance.uniform(40, 400), "several": chance.uniform(400, 900)},
    "efficiency": lambda chance: {"single": chance.uniform(40, 400), "several": chance.uniform(400, 900), "workers": chance.randint(3, 9)},
    "waiting": lambda chance: {"arrivals": numpy.array([_arrivals(chance, step) for step in range(7)])},
    "who_waits": _waits,
    "waiting_share": lambda chance: dict(zip(("begin", "end"), numpy.array([_meetings(chance, number) for number in range(5)]).swapaxes(0, 1))),
    "overlap": lambda chance: {"compute": _spans(chance, 4), "communication": _spans(chance, 3)},
    "updates": lambda chance: {
        "images": 32 * 9 * chance.randint(3, 20) + chance.randint(33, 200),
        "batchsize": chance.turn([16, 32]),
        "workers": chance.randint(3, 9),
        "epochs": chance.randint(3, 6),
    },
    "learning_rate": lambda chance: _rate_of(chance, chance.randint(2, 16)),
    "intra_rank": lambda chance: {"rank": chance.randint(4, 40), "per_node": chance.randint(2, 8)},
    "total_accuracy": lambda chance: _parts(chance, chance.randint(2, 5)),
    "scaling": lambda chance: {"throughputs": _throughputs(chance)},
    "most_workers": lambda chance: _table(chance),
    "allreduce_seconds": lambda chance: {
        "parameters": chance.randint(10_000, 90_000_000),
        "workers": chance.randint(3, 16),
        "megabits": chance.turn([20, 100, 1000, 10_000]),
    },
}
