"""How its known answers are proved right or wrong: see answers.proofs."""

from types import SimpleNamespace


def amdahl(chance):
    return {"serial": chance.choice([0.0, chance.uniform(0, 1)]), "workers": chance.randint(1, 4096)}


def slowest(chance):
    return {
        "steps": [chance.uniform(0.01, 1) for _ in range(chance.randint(1, 100))],
        "workers": chance.randint(1, 512),
    }


def tree(chance):
    return {
        "size": chance.uniform(1, 1e9),
        "ranks": chance.choice([chance.randint(1, 4096), 2 ** chance.randint(0, 12)]),
        "alpha": chance.uniform(0, 0.1),
        "beta": chance.uniform(1e5, 1e11),
    }


def step_time(chance):
    return {
        "computing": chance.uniform(0, 2),
        "all_reduce": chance.uniform(0, 2),
        "double_buffering": chance.random() < 0.5,
    }


def cloud_step(chance):
    seconds = {name: chance.uniform(0, 5) for name in ("loading", "compute", "network")}
    return seconds | {"workers": chance.randint(1, chance.choice([8, 512])), "double_buffering": chance.random() < 0.5}


def order(chance):
    prices = [chance.randint(10, 99) for _ in range(chance.randint(1, 4))]
    most = chance.randint(1, 20)
    throughputs = [[chance.uniform(1, 1000) for _ in range(most)] for _ in prices]
    if chance.random() < 0.5:  # an order that costs the whole budget may be the best
        return {
            "budget": chance.choice(prices) * chance.randint(2, 20),
            "prices": prices,
            "throughputs": list(map(sorted, throughputs)),
        }
    return {"budget": chance.randint(100, 2000), "prices": prices, "throughputs": throughputs}


def gustafson(chance):
    return {"serial": chance.choice([0.0, 1.0, chance.uniform(0, 1)]), "workers": chance.randint(1, 4096)}


EXPECTED = {"prediction_16": (1, 10_000)}  # ms
STEPS = [0.09, 0.1, 0.11]
MEASURED = {
    "steps": STEPS,
    "bytes_sent": 4 * 72_000,
    "alpha": 0.002,
    "rate": 1e7,
    "overhead": 0.004,
    "rest_of_two": 0.008,
    "rest_of_four": 0.016,
    "single": SimpleNamespace(step=0.1, steps=STEPS),
    "two": SimpleNamespace(step=0.14),
    "four": SimpleNamespace(step=0.15),
}
WHOLE = ("order",)
INPUTS = {
    "amdahl": amdahl,
    "gustafson": gustafson,
    "slowest": slowest,
    "tree": tree,
    "step_time": step_time,
    "cloud_step": cloud_step,
    "order": order,
}
