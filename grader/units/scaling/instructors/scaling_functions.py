"""The answers to the gaps in notebook 08_scaling: inputs, what is right, and typical mistakes."""

import math
from itertools import permutations

from grader.checks.notebook_functions import CALLS
from grader.instructors.notebook_answers import Function


def _law(chance, *ends):
    """Return a serial share and a number of workers. The last calls have the serial shares `ends`, the ends of the
    range."""
    serial = [*(chance.uniform(0.02, 0.6) for _ in range(CALLS - len(ends))), *ends][chance.call]
    return {"serial": serial, "workers": chance.randint(3, 500)}


def _amdahl(serial, workers):
    return 1 / (serial + (1 - serial) / workers)


def _gustafson(serial, workers):
    return serial + (1 - serial) * workers


def _steps(chance):
    """Return unordered steps, so that an answer that does not sort them fails. In half of the calls, there are so
    few workers that the shortest step matters. The last call has as many steps and workers as the notebook."""
    number, workers = (
        (59, 64) if chance.call == CALLS - 1 else (chance.randint(4, 6), chance.turn([3, chance.randint(2, 9)]))
    )
    steps = [chance.uniform(0.05, 0.2) for _ in range(number)]
    return {"steps": [max(steps), *steps], "workers": workers}


def _slowest(steps, workers, of_order=sorted):
    n = len(steps)
    return sum(step * ((k / n) ** workers - ((k - 1) / n) ** workers) for k, step in enumerate(of_order(steps), 1))


def _message(chance):
    """Return numbers of ranks. Most are not powers of two, so that rounding is visible, and in two calls they are
    not near the next power of two. One call has a power of two with an odd logarithm, because `round` turns 2.5 into
    2 but 3.5 into 4. Another call has a single rank, which sends nothing."""
    ranks = chance.choice(
        chance.turn([[5, 9, 11, 21], [6, 7, 13, 27, 60], [8, 32, 128], [10, 17, 19, 45], [257, 513, 1025], [1]])
    )
    return {
        "size": chance.uniform(1e5, 1e8),
        "ranks": ranks,
        "alpha": chance.uniform(1e-3, 1e-1),
        "beta": chance.uniform(1e7, 1e9),
    }


def _tree(size, ranks, alpha, beta, rounds=lambda ranks: math.ceil(math.log2(ranks))):
    return 2 * rounds(ranks) * (alpha + size / beta)


def _parts(chance):
    long, short = chance.uniform(0.5, 1), chance.uniform(0.05, 0.4)
    computing, all_reduce = (long, short) if chance.turn([True, True, False]) else (short, long)
    return {"computing": computing, "all_reduce": all_reduce, "double_buffering": chance.turn([True, False])}


def _step_time(computing, all_reduce, double_buffering):
    return max(computing, all_reduce) if double_buffering else computing + all_reduce


# the shortest part first
ORDERS = [
    ("network", "compute", "loading"),
    ("compute", "network", "loading"),
    *permutations(("loading", "compute", "network")),
]


def _cloud(chance):
    """Return parts of a step. Without double buffering, loading takes longer than all other parts together, or
    nearly so. With double buffering, the parts have each order of length in turn."""
    shortest, middle, longest = ORDERS[chance.call]
    part = {shortest: chance.uniform(0.5, 0.6), middle: chance.uniform(0.7, 0.8), longest: chance.uniform(0.9, 1)}
    if chance.call < 2:
        part[longest] = chance.turn([2, 0.97]) * (part[shortest] + part[middle])
    workers = chance.randint(3, 12)
    given = {
        "loading": part["loading"] * workers,
        "compute": part["compute"] * workers,
        "network": part["network"] / (2 * (workers - 1) / workers),
    }
    return given | {"workers": workers, "double_buffering": chance.call >= 2}


def _cloud_step(
    loading,
    compute,
    network,
    workers,
    double_buffering,
    volume=lambda ranks: 2 * (ranks - 1) / ranks,
    of_late=None,
    of_each=None,
):
    loading, compute, sent = loading / workers, compute / workers, network * volume(workers)
    late, each = of_late or max, of_each or (lambda loading, compute, sent: max(loading, compute + sent))
    return late(loading, compute, sent) if double_buffering else each(loading, compute, sent)


def _but(**changes):
    return lambda loading, compute, network, workers, double_buffering: _cloud_step(
        loading, compute, network, workers, double_buffering, **changes
    )


def _offers(chance):
    """Return offers of nodes with a budget. In turns:

    - the throughput falls before the budget is spent; it keeps growing beyond the budget; it is the largest when the
      whole budget is spent; it falls and rises again
    - the budget buys more nodes than there are
    - one of three offers costs more than the budget, and the last offer is the best

    If the throughput falls, the expensive offer is the best, but neither per price nor for the whole budget. If it
    grows, the cheap offer is the best, although the expensive one leaves no money. No two offers have the same
    images/s, so that there is never a tie.
    """
    kind = chance.turn(["falls", "grows", "spent", "rises again", "few nodes", "too dear"])
    cheap, too_dear = chance.randint(40, 50), chance.randint(400, 500)
    dear = chance.choice([price for price in range(75, 91) if 4 * price % cheap])
    prices = [dear, too_dear, cheap] if kind == "too dear" else [cheap, dear]
    budget = {"spent": chance.randint(5, 6) * cheap, "grows": 4 * dear}.get(kind) or chance.randint(320, 360)
    # images/s of a node
    more = {"spent": {cheap: 20}, "too dear": {cheap: 20, too_dear: 100}}.get(kind, {dear: chance.randint(10, 20)})
    rate, peak = chance.randint(80, 100), chance.randint(2, max(2, budget // dear - 1))
    throughputs = []
    for number, price in enumerate(prices):
        # so that one node has the most images/s for its price
        images = [(rate + more.get(price, 0)) * nodes * (1 - 0.02 * nodes) for nodes in range(1, 10)]
        if kind == "falls":
            images[peak:] = [
                images[peak - 1] * (0.4 if price == dear else 0.95) ** later for later in range(1, 10 - peak)
            ]
        if kind == "rises again":
            images[2] = images[1] - 20
        throughputs.append([2.0 * round(one / 2) + number % 2 for one in images[: 4 if kind == "few nodes" else 9]])
    return {"budget": budget, "prices": prices, "throughputs": throughputs}


def _order(
    budget,
    prices,
    throughputs,
    allowed=lambda nodes, price, budget: nodes * price <= budget,
    value=lambda images, nodes, price: images,
):
    found = [
        (value(images, nodes, price), offer, nodes)
        for offer, (price, rates) in enumerate(zip(prices, throughputs))
        for nodes, images in enumerate(rates, 1)
        if allowed(nodes, price, budget)
    ]
    return list(max(found)[1:])


def _until_it_falls(budget, prices, throughputs):
    cut = [
        next((rates[:more] for more in range(1, len(rates)) if rates[more] < rates[more - 1]), rates)
        for rates in throughputs
    ]
    return _order(budget, prices, cut)


ANSWERS = {
    "amdahl": Function(
        # if all work is serial, a typical mistake divides by 0 and gets no sentence
        lambda chance: _law(chance, 0.0),
        _amdahl,
        {
            "`amdahl` assumes more work in the same time (Gustafson's law): here the work stays the same": _gustafson,
            (
                "`amdahl` returns the time of N workers: the speed-up is the time of one worker divided by it"
            ): lambda serial, workers: 1 / _amdahl(serial, workers),
            "`amdahl` divides the serial part by N: only the parallel part is divided": lambda serial, workers: (
                1 / (serial / workers + 1 - serial)
            ),
            (
                "`amdahl` leaves out the serial part: add it, since it takes the same time for every N"
            ): lambda serial, workers: workers / (1 - serial),
        },
    ),
    "gustafson": Function(
        lambda chance: _law(chance, 0.0, 1.0),
        _gustafson,
        {
            "`gustafson` returns the speed-up for the same work (Amdahl's law): here N workers do more work": _amdahl,
            (
                "`gustafson` multiplies the serial part by N: one worker needs N times as long for the"
                " divided part only"
            ): lambda serial, workers: serial * workers + 1 - serial,
            "`gustafson` leaves out the serial part: one worker does it, too": lambda serial, workers: (
                (1 - serial) * workers
            ),
        },
    ),
    "slowest": Function(
        _steps,
        _slowest,
        {
            (
                "`slowest` does not sort the steps: the formula gives the probability of the k-th shortest step"
            ): lambda steps, workers: _slowest(steps, workers, of_order=list),
            (
                "`slowest` sorts the steps in descending order, which gives the fastest of N: the shortest step comes"
                " first"
            ): (lambda steps, workers: _slowest(steps, workers, of_order=lambda steps: sorted(steps, reverse=True))),
            "`slowest` returns the mean of the steps, but N workers wait for the slowest": lambda steps, workers: (
                sum(steps) / len(steps)
            ),
            "`slowest` returns the longest step, but N workers do not always draw it": lambda steps, workers: max(
                steps
            ),
            (
                "`slowest` counts k from 0: k goes from 1 to n, so each step has the probability of the next shorter"
                " one"
            ): lambda steps, workers: sum(
                step * ((k / len(steps)) ** workers - (max(k - 1, 0) / len(steps)) ** workers)
                for k, step in enumerate(sorted(steps))
            ),
        },
    ),
    "tree": Function(
        _message,
        _tree,
        {
            (
                "`tree` ends when one rank has the sum: the sum must travel back to all ranks, in as many rounds"
            ): lambda size, ranks, alpha, beta: _tree(size, ranks, alpha, beta) / 2,
            (
                "`tree` splits the message into N parts, as a ring does: in a tree, each message has all bytes"
            ): lambda size, ranks, alpha, beta: _tree(size / ranks, ranks, alpha, beta),
            (
                "`tree` does not round log2 N: 5 ranks need as many rounds as 8, so round up"
            ): lambda size, ranks, alpha, beta: _tree(size, ranks, alpha, beta, math.log2),
            (
                "`tree` has one round too many for a power of two: 4 ranks need 2 rounds, and 5 need 3, so round log2 N"
                " up"
            ): lambda size, ranks, alpha, beta: _tree(size, ranks, alpha, beta, lambda ranks: ranks.bit_length()),
            (
                "`tree` rounds log2 N down: 5 ranks need as many rounds as 8, so round up"
            ): lambda size, ranks, alpha, beta: _tree(
                size, ranks, alpha, beta, lambda ranks: math.floor(math.log2(ranks))
            ),
            "`tree` counts messages: those of a round travel at the same time, so count rounds": (
                lambda size, ranks, alpha, beta: _tree(size, ranks, alpha, beta, lambda ranks: ranks - 1)
            ),
            "`tree` counts alpha once: every round costs alpha": lambda size, ranks, alpha, beta: (
                alpha + _tree(size, ranks, 0, beta)
            ),
            "`tree` multiplies by beta: beta is bytes per second, so divide by it": lambda size, ranks, alpha, beta: (
                _tree(size, ranks, alpha, 1 / beta)
            ),
        },
    ),
    "step_time": Function(
        _parts,
        _step_time,
        {
            (
                "`step_time` adds the two parts with double buffering: both run at the same time, so the longer one"
                " counts"
            ): (lambda computing, all_reduce, double_buffering: computing + all_reduce),
            (
                "`step_time` takes the longer part without double buffering: the all-reduce then starts after the"
                " computation, so add both"
            ): (lambda computing, all_reduce, double_buffering: max(computing, all_reduce)),
            "`step_time` swaps the two cases: double buffering hides the shorter part": (
                lambda computing, all_reduce, double_buffering: _step_time(computing, all_reduce, not double_buffering)
            ),
            (
                "`step_time` never counts the all-reduce with double buffering: it is hidden only while the next step"
                " computes, so a longer one counts"
            ): lambda computing, all_reduce, double_buffering: (
                computing if double_buffering else computing + all_reduce
            ),
        },
    ),
    "cloud_step": Function(
        _cloud,
        _cloud_step,
        {
            (
                "`cloud_step` adds the loading time without double buffering: other processes load images at the same"
                " time"
            ): _but(of_each=lambda *parts: sum(parts)),
            (
                "`cloud_step` always adds the loading time: other processes load images at the same time, with double"
                " buffering, too"
            ): _but(of_each=lambda *parts: sum(parts), of_late=lambda loading, *rest: loading + max(rest)),
            (
                "`cloud_step` compares loading only with computation: loading runs during computation and network, so"
                " the longer of loading and these two together counts"
            ): (_but(of_each=lambda loading, compute, sent: max(loading, compute) + sent)),
            "`cloud_step` takes the longest part without double buffering: network and computation then add up": _but(
                of_each=max
            ),
            "`cloud_step` adds computation and network with double buffering: they run at the same time": _but(
                of_late=lambda loading, compute, sent: max(loading, compute + sent)
            ),
            "`cloud_step` leaves out loading: it counts if it takes longer than the rest": _but(
                of_late=lambda loading, *rest: max(rest), of_each=lambda loading, *rest: sum(rest)
            ),
            "`cloud_step` takes `network` as it is: a ring sends 2 (N - 1) / N of the gradients' bytes": _but(
                volume=lambda ranks: 1
            ),
            (
                "`cloud_step` gives each worker the whole batch: each worker loads and computes an N-th of it"
            ): lambda loading, compute, network, workers, double_buffering: _cloud_step(
                loading * workers, compute * workers, network, workers, double_buffering
            ),
        },
        number=len(ORDERS),
    ),
    "order": Function(
        _offers,
        _order,
        {
            "`order` ignores the price: this order costs more than the budget": lambda budget, prices, throughputs: (
                _order(budget, prices, throughputs, allowed=lambda nodes, price, budget: True)
            ),
            "`order` spends as much of the budget as it can: more nodes can be slower, so look for the most images/s": (
                lambda budget, prices, throughputs: max(
                    ([offer, min(budget // price, len(throughputs[0]))] for offer, price in enumerate(prices)),
                    key=lambda one: throughputs[one[0]][one[1] - 1],
                )
            ),
            (
                "`order` stops where the throughput falls: it may rise again with more nodes, so look at all numbers of"
                " nodes"
            ): (_until_it_falls),
            "`order` looks for the most images/s per price: the budget allows more images/s": (
                lambda budget, prices, throughputs: _order(
                    budget, prices, throughputs, value=lambda images, nodes, price: images / nodes / price
                )
            ),
            (
                '`order` leaves out orders that cost exactly the budget: "at most" includes them'
            ): lambda budget, prices, throughputs: _order(
                budget, prices, throughputs, allowed=lambda nodes, price, budget: nodes * price < budget
            ),
            "`order` counts nodes from 0: count them from 1": lambda budget, prices, throughputs: [
                _order(budget, prices, throughputs)[0],
                _order(budget, prices, throughputs)[1] - 1,
            ],
            (
                "`order` returns the numbers in the wrong order: the offer comes first, then the nodes"
            ): lambda budget, prices, throughputs: _order(budget, prices, throughputs)[::-1],
            "`order` counts offers from 1: count them from 0": lambda budget, prices, throughputs: [
                _order(budget, prices, throughputs)[0] + 1,
                _order(budget, prices, throughputs)[1],
            ],
        },
    ),
}
