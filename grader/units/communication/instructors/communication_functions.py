"""The answers to the gaps in notebook 05_communication: inputs, right values and typical mistakes."""

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
    """Return sizes and seconds, in arrays as in the notebook, for some alpha and beta. The messages between the first
    and the last deviate a little, as measured messages do."""
    alpha, beta = chance.uniform(1e-5, 1e-3), chance.uniform(1e6, 1e9)
    sizes = sorted(64 * 4**power for power in chance.sample(range(9), chance.turn([4, 6, 5])))
    seconds = [alpha + size / beta for size in sizes]
    seconds[1:-1] = [one * chance.uniform(1.05, 1.3) for one in seconds[1:-1]]
    return {"sizes": numpy.array(sizes), "seconds": numpy.array(seconds)}


def _alpha_beta(sizes, seconds):
    beta = (sizes[-1] - sizes[0]) / (seconds[-1] - seconds[0]) / 1e6
    return [1e6 * seconds[0] - sizes[0] / beta, beta]


def _nearest_line(sizes, seconds):
    """Fit a line with the standard library, because NumPy's digits depend on the processor."""
    line = linear_regression(sizes, [1e6 * each for each in seconds])
    return [line.intercept, 1 / line.slope]


def _latency(chance):
    """Return arguments; in half of the calls, the bytes are so few that rounding is visible."""
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
    """Return arguments whose steps are, in turns, one more than whole blocks, whole blocks, and one less. In the last
    call, training ends before its first block does. The number of blocks is odd, because `round` returns 4 for 4.5 and
    for 3.5. The number of ranks does not divide the number of parameters."""
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
            "in your naive all-reduce, rank 0 also sends to itself: it sends only to the N - 1 other ranks": _but(
                naive=lambda n, ranks: ranks * n
            ),
            (
                "in your naive all-reduce, the messages that rank 0 receives are counted: count only the messages"
                " that it sends"
            ): _but(naive=lambda n, ranks: 2 * (ranks - 1) * n),
            (
                "your naive all-reduce counts a rank other than 0: rank 0 is the busiest, it sends the sum to each"
                " other rank"
            ): _but(naive=lambda n, ranks: n),
            (
                "your ring has only N - 1 messages: count the reduce-scatter and the all-gather, with N - 1 messages"
                " each"
            ): _but(ring=lambda n, ranks: (ranks - 1) / ranks * n),
            "in your ring, each message has all n bytes: a message has n / N bytes": _but(
                ring=lambda n, ranks: 2 * (ranks - 1) * n
            ),
            "in your ring, both parts have N steps: each part has N - 1 steps": _but(ring=lambda n, ranks: 2 * n),
            "in your ring, the factor 2 (N - 1) / N is 1, but it depends on `ranks`: do not round it, as // does": _but(
                ring=lambda n, ranks: n
            ),
            "in your ring, n // ranks is rounded: divide with /, as n / ranks need not be a whole number": _but(
                ring=lambda n, ranks: 2 * (ranks - 1) * (n // ranks)
            ),
            "your doubling has N - 1 rounds: it has log2 N rounds, with n bytes each": _but(
                doubling=lambda n, ranks: (ranks - 1) * n
            ),
            "your doubling has a single round: it has log2 N rounds, with n bytes each": _but(
                doubling=lambda n, ranks: n
            ),
        },
    ),
    "alpha_beta": Function(
        _messages,
        _alpha_beta,
        {
            "your beta is in microseconds per byte: return bytes per microsecond, which are MB/s": (
                lambda sizes, seconds: [_alpha_beta(sizes, seconds)[0], 1 / _alpha_beta(sizes, seconds)[1]]
            ),
            "your alpha is the whole time of the smallest message: subtract the time of its bytes": (
                lambda sizes, seconds: [1e6 * seconds[0], _alpha_beta(sizes, seconds)[1]]
            ),
            (
                "your beta uses the whole time of the largest message, which contains alpha: use the differences of"
                " the two messages"
            ): (
                lambda sizes, seconds: [
                    1e6 * seconds[0] - sizes[0] * 1e6 * seconds[-1] / sizes[-1],
                    sizes[-1] / seconds[-1] / 1e6,
                ]
            ),
            "your result has beta first: return [alpha, beta]": lambda sizes, seconds: _alpha_beta(sizes, seconds)[
                ::-1
            ],
            "your line is the best fit of all messages: it should go through the first and the last message": (
                _nearest_line
            ),
            "your result uses the first two messages: use the first and the last message": lambda sizes, seconds: (
                _alpha_beta(sizes[:2], seconds[:2])
            ),
            "your beta is in Mbit/s, which is 8 times as much: return MB/s": lambda sizes, seconds: [
                _alpha_beta(sizes, seconds)[0],
                8 * _alpha_beta(sizes, seconds)[1],
            ],
            "your alpha is in seconds: return microseconds": lambda sizes, seconds: [
                _alpha_beta(sizes, seconds)[0] / 1e6,
                _alpha_beta(sizes, seconds)[1],
            ],
            "your beta is in bytes/s: return MB/s": lambda sizes, seconds: [
                _alpha_beta(sizes, seconds)[0],
                _alpha_beta(sizes, seconds)[1] * 1e6,
            ],
        },
    ),
    "ring_wins_from": Function(
        _latency,
        _ring_wins_from,
        {
            "your result lacks the latency of doubling: subtract log2 N alpha from the ring's 2 (N - 1) alpha": (
                lambda alpha, beta, ranks: _ring_wins_from(alpha, beta, ranks, more=lambda ranks: 2 * (ranks - 1))
            ),
            (
                "in your result, the ring has half as many messages as it should have, compared with doubling: the ring"
                " has 2 (N - 1), and doubling has log2 N"
            ): (
                lambda alpha, beta, ranks: _ring_wins_from(
                    alpha,
                    beta,
                    ranks,
                    lambda ranks: ranks - 1 - _rounds(ranks),
                    lambda ranks: _rounds(ranks) - (ranks - 1) / ranks,
                )
            ),
            "in your result, doubling has one round: it has log2 N rounds": lambda alpha, beta, ranks: _ring_wins_from(
                alpha, beta, ranks, lambda ranks: 2 * (ranks - 1) - 1, lambda ranks: 1 - 2 * (ranks - 1) / ranks
            ),
            "your result divides alpha by beta: n / beta is a time, so n is alpha times beta, times a number": (
                lambda alpha, beta, ranks: _ring_wins_from(alpha, 1 / beta, ranks)
            ),
            "your result is in MB: alpha in microseconds times beta in bytes per microsecond gives bytes": (
                lambda alpha, beta, ranks: _ring_wins_from(alpha, beta, ranks) / 1e6
            ),
            "your result is negative: the ring sends fewer bytes, but more messages": lambda alpha, beta, ranks: (
                -_ring_wins_from(alpha, beta, ranks)
            ),
        },
    ),
    "hook_bytes": Function(
        lambda chance: {"method": chance.turn(list(HOOKS)), "parameters": 800 * chance.randint(10, 2000)},
        lambda method, parameters: HOOKS[method](parameters),
        {
            "your result for plain counts one byte per gradient: a float32 has 4 bytes": _hook_but(
                "plain", lambda n: n
            ),
            "your result is in bits: 8 bits are a byte": lambda method, parameters: 8 * HOOKS[method](parameters),
            "your result for float16 counts 16 bytes per gradient: a float16 has 16 bits, which are 2 bytes": _hook_but(
                "float16", lambda n: 16 * n
            ),
            "your result for 1-bit counts one byte per sign: 8 signs fit into one byte": _hook_but(
                "1-bit", lambda n: n + 4
            ),
            "your result for 1-bit lacks the scale: add 4 bytes": _hook_but("1-bit", lambda n: n / 8),
            "your result for 1-bit has a scale for each gradient: there is one scale of 4 bytes for all gradients": (
                _hook_but("1-bit", lambda n: n / 8 + 4 * n)
            ),
            "your result for top-1-percent lacks the indices: add 4 bytes for each value": _hook_but(
                "top-1-percent", lambda n: 4 * n / 100
            ),
            "your result for top-1-percent counts one byte per index: an index has 4 bytes, like a value": _hook_but(
                "top-1-percent", lambda n: 5 * n / 100
            ),
            "your result for top-1-percent counts all values: it sends 1 % of them": _hook_but(
                "top-1-percent", lambda n: 8 * n
            ),
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
            "your result repeats a whole interval per failure: on average, half an interval is repeated": (
                lambda interval, checkpoint, between: checkpoint / interval + interval / between
            ),
            "your result lacks the failures: each failure repeats half an interval on average": (
                lambda interval, checkpoint, between: checkpoint / interval
            ),
            "your result lacks the checkpoints: each interval contains one checkpoint": (
                lambda interval, checkpoint, between: interval / 2 / between
            ),
            "your result is in percent: return a share from 0 to 1": lambda interval, checkpoint, between: (
                100 * (checkpoint / interval + interval / 2 / between)
            ),
            "your result is in seconds: return a share of the time": lambda interval, checkpoint, between: (
                checkpoint + interval / 2
            ),
            "your result has one checkpoint per failure: each interval contains one checkpoint": (
                lambda interval, checkpoint, between: checkpoint / between + interval / 2 / between
            ),
            (
                "your interval starts after the checkpoint: `interval` contains it, so its share is checkpoint /"
                " interval"
            ): (lambda interval, checkpoint, between: checkpoint / (interval + checkpoint) + interval / 2 / between),
            "your result multiplies the two shares: add them": lambda interval, checkpoint, between: (
                checkpoint / interval * interval / 2 / between
            ),
        },
    ),
    "block_bytes": Function(
        _blocks,
        _block_bytes,
        {
            "your result counts a part of a block: an unfinished block sends nothing, so use steps // period": (
                lambda parameters, steps, period, ranks: steps / period * _ring_bytes(parameters, ranks)
            ),
            "your result counts the unfinished block: it sends nothing, so round down": (
                lambda parameters, steps, period, ranks: -(-steps // period) * _ring_bytes(parameters, ranks)
            ),
            "your result lacks the last block: it counts if it ends with the last step": (
                lambda parameters, steps, period, ranks: (steps - 1) // period * _ring_bytes(parameters, ranks)
            ),
            "your result has an all-reduce in every step: the ranks average once every `period` steps": (
                lambda parameters, steps, period, ranks: steps * _ring_bytes(parameters, ranks)
            ),
            "your result grows with `period`: a longer period sends less, in steps // period blocks": (
                lambda parameters, steps, period, ranks: steps * period * _ring_bytes(parameters, ranks)
            ),
            (
                "your ring has only one part: count the reduce-scatter and the all-gather, with (N - 1) / N of the"
                " bytes each"
            ): (lambda parameters, steps, period, ranks: _block_bytes(parameters, steps, period, ranks) / 2),
            "your result counts one byte per parameter: a float32 has 4 bytes": (
                lambda parameters, steps, period, ranks: _block_bytes(parameters, steps, period, ranks) / 4
            ),
            "your result is for a single block: there are steps // period blocks": (
                lambda parameters, steps, period, ranks: _ring_bytes(parameters, ranks)
            ),
            "in your ring, the factor 2 (N - 1) / N is 1, but it depends on `ranks`: do not round it, as // does": (
                lambda parameters, steps, period, ranks: steps // period * 4 * parameters
            ),
            "in your ring, each message has all bytes: a message has 1/N of the bytes": (
                lambda parameters, steps, period, ranks: ranks * _block_bytes(parameters, steps, period, ranks)
            ),
        },
    ),
}
