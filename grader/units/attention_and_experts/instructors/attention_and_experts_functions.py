"""The answers to the notebook's gaps: inputs, what is right, and typical mistakes."""

from grader.instructors.notebook_answers import Function

WAYS = "one process", "ring", "heads"


def _scores(way, tokens, heads, ranks):
    if way == "ring":
        return 4 * heads * (tokens / ranks) ** 2
    return 4 * heads * tokens**2 / (ranks if way == "heads" else 1)


def _scores_but(**wrong):
    """score_bytes with another value for one way: "ring" or "heads"."""
    return lambda way, tokens, heads, ranks: (
        wrong[way](tokens, heads, ranks) if way in wrong else _scores(way, tokens, heads, ranks)
    )


def _sent(way, tokens, width, ranks):
    part = 4 * tokens / ranks * width
    return 2 * (ranks - 1) * part if way == "ring" else 4 * (ranks - 1) / ranks * part


def _sent_but(**wrong):
    """sent_bytes with another value for one way, from the bytes of a rank's part of a tensor."""
    return lambda way, tokens, width, ranks: (
        wrong[way](4 * tokens / ranks * width, ranks) if way in wrong else _sent(way, tokens, width, ranks)
    )


def _slowest(counts, ranks):
    each = len(counts) // ranks
    of_ranks = [sum(counts[rank * each : (rank + 1) * each]) for rank in range(ranks)]
    return max(of_ranks) / (sum(counts) / ranks)


def _load(chance):
    ranks, each = chance.randint(2, 5), chance.randint(2, 4)
    return {"counts": [chance.randint(0, 900) for _ in range(ranks * each)], "ranks": ranks}


ANSWERS = {
    "score_bytes": Function(
        lambda chance: {
            "way": chance.turn(WAYS),
            "tokens": 64 * chance.randint(10, 99),
            "heads": 8 * chance.randint(1, 9),
            "ranks": chance.choice([4, 8]),
        },
        _scores,
        {
            "these are numbers, not bytes: a float32 has 4 bytes": lambda **of: _scores(**of) / 4,
            "in the ring, a rank has its part of the queries, and one block of the keys at a time": _scores_but(
                ring=lambda tokens, heads, ranks: 4 * heads * tokens**2 / ranks
            ),
            "by heads, a rank has all queries and all keys, of its heads alone": _scores_but(
                heads=lambda tokens, heads, ranks: 4 * heads / ranks * (tokens / ranks) ** 2
            ),
            "every head has scores of its own": lambda way, tokens, heads, ranks: _scores(
                way, tokens, ranks if way == "heads" else 1, ranks
            ),
        },
    ),
    "sent_bytes": Function(
        lambda chance: {
            "way": chance.turn(WAYS[1:]),
            "tokens": 64 * chance.randint(10, 99),
            "width": 8 * chance.randint(4, 99),
            "ranks": chance.choice([4, 8, 16]),
        },
        _sent,
        {
            "in the ring, keys and values travel: two tensors": _sent_but(ring=lambda part, n: (n - 1) * part),
            "N - 1 steps of the ring send: in the last one nothing travels any more": _sent_but(
                ring=lambda part, n: 2 * n * part
            ),
            "queries stay where they are in the ring: two tensors travel": _sent_but(
                ring=lambda part, n: 3 * (n - 1) * part
            ),
            "by heads, query, key and value go there, and the result comes back: four tensors": _sent_but(
                heads=lambda part, n: 3 * (n - 1) / n * part
            ),
            "by heads, 1/N of a rank's part stays where it is": _sent_but(heads=lambda part, n: 4 * part),
            "these are numbers, not bytes: a float32 has 4 bytes": lambda **of: _sent(**of) / 4,
        },
    ),
    "keys_seen": Function(
        lambda chance: {"places": sorted(chance.sample(range(60), 9))},
        lambda places: sum(place + 1 for place in places),
        {
            "the query at place p sees its own key, too: p + 1": lambda places: sum(places),
            "a query sees all keys up to its place, also those of other ranks": lambda places: (
                len(places) * (len(places) + 1) // 2
            ),
            "that is without a causal mask, and only of this rank's keys": lambda places: len(places) ** 2,
        },
    ),
    "slowest": Function(
        _load,
        _slowest,
        {
            "that is the share of the fullest expert; a rank computes all of its experts": lambda counts, ranks: (
                max(counts) / (sum(counts) / len(counts))
            ),
            "divide the most tokens of a rank by the mean of the ranks, not by all tokens": lambda counts, ranks: (
                _slowest(counts, ranks) / ranks
            ),
            "that is the number of tokens of the fullest rank: divide it by the mean of the ranks": (
                lambda counts, ranks: _slowest(counts, ranks) * sum(counts) / ranks
            ),
        },
    ),
}
