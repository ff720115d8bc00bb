"""The answers to the gaps in notebook 05_communication: inputs, what is right, and typical mistakes."""

from statistics import linear_regression

import numpy

from grader.instructors.notebook_answers import Function


def _power(chance):
    """Few ranks, then many; with 2 or 4 ranks, some formulas agree."""
    return 2 ** (chance.randint(3, 5) if chance.call < 3 else chance.randint(6, 8))


def _rounds(ranks):
    return ranks.bit_length() - 1


def _bytes_sent(algorithm, n, ranks):
    return {"naive": (ranks - 1) * n, "ring": 2 * (ranks - 1) / ranks * n, "doubling": _rounds(ranks) * n}[algorithm]


def _but(**wrong):
    """bytes_sent with another formula for some algorithms."""
    return lambda algorithm, n, ranks: (
        wrong[algorithm](n, ranks) if algorithm in wrong else _bytes_sent(algorithm, n, ranks)
    )


def _messages(chance):
    """Sizes and seconds, in arrays, as the notebook has them, of an alpha and a beta; the messages between the first
    and the last are a little off, as measured ones are."""
    alpha, beta = chance.uniform(1e-5, 1e-3), chance.uniform(1e6, 1e9)
    sizes = sorted(64 * 4**power for power in chance.sample(range(9), chance.turn([4, 6, 5])))
    seconds = [alpha + size / beta for size in sizes]
    seconds[1:-1] = [one * chance.uniform(1.05, 1.3) for one in seconds[1:-1]]
    return {"sizes": numpy.array(sizes), "seconds": numpy.array(seconds)}


def _alpha_beta(sizes, seconds):
    beta = (sizes[-1] - sizes[0]) / (seconds[-1] - seconds[0]) / 1e6
    return [1e6 * seconds[0] - sizes[0] / beta, beta]


def _nearest_line(sizes, seconds):
    """Of the standard library: NumPy's digits depend on the processor."""
    line = linear_regression(sizes, [1e6 * each for each in seconds])
    return [line.intercept, 1 / line.slope]


def _latency(chance):
    """In half of the calls, the bytes are so few that rounding them is seen."""
    alpha, beta = chance.turn([30, 1000]), chance.turn([5, 1000])
    return {"alpha": chance.uniform(10, alpha), "beta": chance.uniform(2, beta), "ranks": 2 ** chance.randint(2, 6)}


def _ring_wins_from(
    alpha,
    beta,
    ranks,
    more=lambda ranks: 2 * (ranks - 1) - _rounds(ranks),
    fewer=lambda ranks: _rounds(ranks) - 2 * (ranks - 1) / ranks,
):
    return more(ranks) * alpha * beta / fewer(ranks)


HOOKS = {
    "plain": lambda n: 4 * n,
    "float16": lambda n: 2 * n,
    "1-bit": lambda n: n / 8 + 4,
    "top-1-percent": lambda n: 8 * n / 100,
}


def _hook_but(method_of_it, wrong):
    return lambda method, parameters: (wrong if method == method_of_it else HOOKS[method])(parameters)


def _blocks(chance):
    """In turns, steps that make one more than whole blocks, whole blocks, and one less; the last training ends before
    its first block does. The number of blocks is odd, since `round` takes 4.5 for 4, but 3.5 for 4, too. The ranks do
    not divide the parameters."""
    period = chance.randint(3, 12)
    blocks = 0 if chance.call == 5 else 2 * chance.randint(2, 4) + 1
    steps, parameters = blocks * period + chance.turn([1, 0, period - 1]), 100 * chance.randint(700, 3000)
    return {
        "parameters": parameters,
        "steps": steps,
        "period": period,
        "ranks": chance.choice([ranks for ranks in range(3, 17) if parameters % ranks]),
    }


def _block_bytes(parameters, steps, period, ranks):
    return steps // period * _ring_bytes(parameters, ranks)


def _ring_bytes(parameters, ranks):
    return 2 * (ranks - 1) / ranks * 4 * parameters


ANSWERS = {
    "bytes_sent": Function(
        lambda chance: {
            "algorithm": chance.turn(["naive", "ring", "doubling"]),
            "n": 2 * chance.randint(50, 4000) + 1,
            "ranks": _power(chance),
        },
        _bytes_sent,
        {
            "in the naive all-reduce rank 0 also sends to itself: it sends to the N - 1 other ranks": _but(
                naive=lambda n, ranks: ranks * n
            ),
            "in the naive all-reduce rank 0 sends the sum; what it receives is not counted": _but(
                naive=lambda n, ranks: 2 * (ranks - 1) * n
            ),
            "that is what the other ranks send in the naive all-reduce; rank 0 sends the sum to each of them": _but(
                naive=lambda n, ranks: n
            ),
            "the ring has a reduce-scatter and an all-gather, each with N - 1 messages": _but(
                ring=lambda n, ranks: (ranks - 1) / ranks * n
            ),
            "in a ring a message has 1/N of the bytes": _but(ring=lambda n, ranks: 2 * (ranks - 1) * n),
            "a ring has N - 1 steps of each kind, not N": _but(ring=lambda n, ranks: 2 * n),
            "with //, 2 (N - 1) / N becomes 1: divide with /": _but(ring=lambda n, ranks: n),
            "each message of the ring was rounded: n / ranks need not be whole": _but(
                ring=lambda n, ranks: 2 * (ranks - 1) * (n // ranks)
            ),
            "doubling takes log2 N rounds, not N - 1, and each round has n bytes": _but(
                doubling=lambda n, ranks: (ranks - 1) * n
            ),
            "doubling takes log2 N rounds, each with all n bytes": _but(doubling=lambda n, ranks: n),
        },
    ),
    "alpha_beta": Function(
        _messages,
        _alpha_beta,
        {
            "that is the microseconds a byte takes; beta is bytes per microsecond, which are MB/s": (
                lambda sizes, seconds: [_alpha_beta(sizes, seconds)[0], 1 / _alpha_beta(sizes, seconds)[1]]
            ),
            "alpha is not yet the time of the smallest message: its bytes take some of that": lambda sizes, seconds: [
                1e6 * seconds[0],
                _alpha_beta(sizes, seconds)[1],
            ],
            "beta follows from the differences between the two messages: the time of the largest one contains alpha": (
                lambda sizes, seconds: [
                    1e6 * seconds[0] - sizes[0] * 1e6 * seconds[-1] / sizes[-1],
                    sizes[-1] / seconds[-1] / 1e6,
                ]
            ),
            "your beta comes first: return [alpha, beta]": lambda sizes, seconds: _alpha_beta(sizes, seconds)[::-1],
            "that is the line nearest to all messages; it should go through the first and the last": _nearest_line,
            "the first and the last message count, not the first two": lambda sizes, seconds: _alpha_beta(
                sizes[:2], seconds[:2]
            ),
            "beta is in Mbit/s, 8 times as much as in MB/s; return MB/s": lambda sizes, seconds: [
                _alpha_beta(sizes, seconds)[0],
                8 * _alpha_beta(sizes, seconds)[1],
            ],
            "alpha is in seconds; return microseconds": lambda sizes, seconds: [
                _alpha_beta(sizes, seconds)[0] / 1e6,
                _alpha_beta(sizes, seconds)[1],
            ],
            "alpha is in seconds and beta in bytes/s; return microseconds and MB/s": lambda sizes, seconds: [
                _alpha_beta(sizes, seconds)[0] / 1e6,
                _alpha_beta(sizes, seconds)[1] * 1e6,
            ],
        },
    ),
    "ring_wins_from": Function(
        _latency,
        _ring_wins_from,
        {
            "the latency of the ring is 2 (N - 1) alpha, that of doubling log2 N alpha: their difference counts": (
                lambda alpha, beta, ranks: _ring_wins_from(alpha, beta, ranks, more=lambda ranks: 2 * (ranks - 1))
            ),
            "the ring has 2 (N - 1) messages: a reduce-scatter and an all-gather": lambda alpha, beta, ranks: (
                _ring_wins_from(
                    alpha,
                    beta,
                    ranks,
                    lambda ranks: ranks - 1 - _rounds(ranks),
                    lambda ranks: _rounds(ranks) - (ranks - 1) / ranks,
                )
            ),
            "doubling has log2 N rounds, not one": lambda alpha, beta, ranks: _ring_wins_from(
                alpha, beta, ranks, lambda ranks: 2 * (ranks - 1) - 1, lambda ranks: 1 - 2 * (ranks - 1) / ranks
            ),
            "beta is bytes per microsecond: n / beta are microseconds, so n is alpha *times* beta, times a number": (
                lambda alpha, beta, ranks: _ring_wins_from(alpha, 1 / beta, ranks)
            ),
            "that is in MB; alpha in microseconds times beta in bytes per microsecond are bytes": (
                lambda alpha, beta, ranks: _ring_wins_from(alpha, beta, ranks) / 1e6
            ),
            "that is negative: the ring sends fewer bytes, and more messages": lambda alpha, beta, ranks: (
                -_ring_wins_from(alpha, beta, ranks)
            ),
        },
    ),
    "hook_bytes": Function(
        lambda chance: {"method": chance.turn(list(HOOKS)), "parameters": 800 * chance.randint(10, 2000)},
        lambda method, parameters: HOOKS[method](parameters),
        {
            "a float32 has 4 bytes": _hook_but("plain", lambda n: n),
            "that is bits: 8 of them are a byte": lambda method, parameters: 8 * HOOKS[method](parameters),
            "a float16 has 16 bits, which are 2 bytes": _hook_but("float16", lambda n: 16 * n),
            "signs are bits: 8 of them are a byte": _hook_but("1-bit", lambda n: n + 4),
            "with 1 bit, the scale travels too: 4 bytes": _hook_but("1-bit", lambda n: n / 8),
            "there is one scale of 4 bytes for all gradients, not one for each": _hook_but(
                "1-bit", lambda n: n / 8 + 4 * n
            ),
            "with top-1-percent, each value travels with its place: 4 bytes more": _hook_but(
                "top-1-percent", lambda n: 4 * n / 100
            ),
            "a place takes 4 bytes, as the value does": _hook_but("top-1-percent", lambda n: 5 * n / 100),
            "top-1-percent sends one value of a hundred": _hook_but("top-1-percent", lambda n: 8 * n),
        },
    ),
    "lost_share": Function(
        lambda chance: {
            "interval": chance.uniform(60, 1800),
            "checkpoint": chance.uniform(1, 50),
            "between": chance.uniform(20_000, 200_000),
        },
        lambda interval, checkpoint, between: checkpoint / interval + interval / 2 / between,
        {
            "a failure loses half an interval on average, not a whole one": lambda interval, checkpoint, between: (
                checkpoint / interval + interval / between
            ),
            "failures cost time, too: what was done since the last checkpoint": lambda interval, checkpoint, between: (
                checkpoint / interval
            ),
            "the checkpoints take time, too: one in each interval": lambda interval, checkpoint, between: (
                interval / 2 / between
            ),
            "that is in per cent; return a share, from 0 to 1": lambda interval, checkpoint, between: (
                100 * (checkpoint / interval + interval / 2 / between)
            ),
            "those are seconds; return a share of the time": lambda interval, checkpoint, between: (
                checkpoint + interval / 2
            ),
            "a checkpoint is written once in an interval, not once between two failures": (
                lambda interval, checkpoint, between: checkpoint / between + interval / 2 / between
            ),
            "a checkpoint is written every `interval` seconds: its share of the time is checkpoint / interval": (
                lambda interval, checkpoint, between: checkpoint / (interval + checkpoint) + interval / 2 / between
            ),
            "the two losses add up": lambda interval, checkpoint, between: (
                checkpoint / interval * interval / 2 / between
            ),
        },
    ),
    "block_bytes": Function(
        _blocks,
        _block_bytes,
        {
            "a block that is not finished sends nothing: the number of blocks is whole": (
                lambda parameters, steps, period, ranks: steps / period * _ring_bytes(parameters, ranks)
            ),
            "a block that is not finished sends nothing: round down": lambda parameters, steps, period, ranks: (
                -(-steps // period) * _ring_bytes(parameters, ranks)
            ),
            "the last block counts, too, if it ends with the last step": lambda parameters, steps, period, ranks: (
                (steps - 1) // period * _ring_bytes(parameters, ranks)
            ),
            "that is what the ranks would send in every step; they send once in `period` steps": (
                lambda parameters, steps, period, ranks: steps * _ring_bytes(parameters, ranks)
            ),
            "a longer period sends less: there are steps // period blocks": lambda parameters, steps, period, ranks: (
                steps * period * _ring_bytes(parameters, ranks)
            ),
            "the ring has a reduce-scatter and an all-gather, each with (N - 1) / N of the bytes": (
                lambda parameters, steps, period, ranks: _block_bytes(parameters, steps, period, ranks) / 2
            ),
            "a float32 has 4 bytes": lambda parameters, steps, period, ranks: (
                _block_bytes(parameters, steps, period, ranks) / 4
            ),
            "that is a single block": lambda parameters, steps, period, ranks: _ring_bytes(parameters, ranks),
            "a rank sends 2 (N - 1) / N times the bytes of the parameters in a ring, a factor that // makes 1": (
                lambda parameters, steps, period, ranks: steps // period * 4 * parameters
            ),
            "each message of the ring has 1/N of the bytes": lambda parameters, steps, period, ranks: (
                ranks * _block_bytes(parameters, steps, period, ranks)
            ),
        },
    ),
}
