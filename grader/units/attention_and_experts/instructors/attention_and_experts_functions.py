"""The answers to the notebook's gaps: inputs, what is right, and typical mistakes."""

from grader.instructors.notebook_answers import Function

WAYS = "one process", "ring", "heads"


def _scores(way, tokens, heads, ranks):
    if way == "ring":
        return 4 * heads * (tokens / ranks) ** 2
    return 4 * heads * tokens**2 / (ranks if way == "heads" else 1)


def _scores_but(**wrong):
    """Return score_bytes with a wrong value for one way: "ring" or "heads"."""
    return lambda way, tokens, heads, ranks: (
        wrong[way](tokens, heads, ranks) if way in wrong else _scores(way, tokens, heads, ranks)
    )


def _sent(way, tokens, width, ranks):
    part = 4 * tokens / ranks * width
    return 2 * (ranks - 1) * part if way == "ring" else 4 * (ranks - 1) / ranks * part


def _sent_but(**wrong):
    """Return sent_bytes with a wrong value for one way, computed from the bytes of a rank's part of a tensor."""
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
            "`score_bytes` counts numbers instead of bytes: a float32 has 4 bytes": lambda **of: _scores(**of) / 4,
            "`score_bytes` counts all keys for the ring, but a rank has one block of the keys at a time": _scores_but(
                ring=lambda tokens, heads, ranks: 4 * heads * tokens**2 / ranks
            ),
            (
                "`score_bytes` splits the tokens by heads, but a rank has all queries and all keys of its heads"
            ): _scores_but(heads=lambda tokens, heads, ranks: 4 * heads / ranks * (tokens / ranks) ** 2),
            "`score_bytes` counts one head, but every head has its own scores": lambda way, tokens, heads, ranks: (
                _scores(way, tokens, ranks if way == "heads" else 1, ranks)
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
            "`sent_bytes` counts one tensor for the ring, but keys and values travel: two tensors": _sent_but(
                ring=lambda part, n: (n - 1) * part
            ),
            "`sent_bytes` counts N steps of the ring, but the last step sends nothing: N - 1 steps send": _sent_but(
                ring=lambda part, n: 2 * n * part
            ),
            "`sent_bytes` counts three tensors for the ring, but the queries stay: two tensors travel": _sent_but(
                ring=lambda part, n: 3 * (n - 1) * part
            ),
            "`sent_bytes` counts three tensors by heads, but the result travels back, too: four tensors": _sent_but(
                heads=lambda part, n: 3 * (n - 1) / n * part
            ),
            "`sent_bytes` counts whole parts by heads, but 1/N of each part stays on its rank": _sent_but(
                heads=lambda part, n: 4 * part
            ),
            "`sent_bytes` counts numbers instead of bytes: a float32 has 4 bytes": lambda **of: _sent(**of) / 4,
        },
    ),
    "keys_seen": Function(
        lambda chance: {"places": sorted(chance.sample(range(60), 9))},
        lambda places: sum(place + 1 for place in places),
        {
            "`keys_seen` leaves out the query's own key: the query at position p sees p + 1 keys": lambda places: sum(
                places
            ),
            "`keys_seen` counts only the keys of this rank: a query sees all keys up to its position": lambda places: (
                len(places) * (len(places) + 1) // 2
            ),
            "`keys_seen` ignores the causal mask, and counts only this rank's keys": lambda places: len(places) ** 2,
        },
    ),
    "slowest": Function(
        _load,
        _slowest,
        {
            "`slowest` compares single experts, but a rank computes all of its experts": lambda counts, ranks: (
                max(counts) / (sum(counts) / len(counts))
            ),
            (
                "`slowest` divides by all tokens: divide the largest number of a rank by the mean of the ranks"
            ): lambda counts, ranks: _slowest(counts, ranks) / ranks,
            "`slowest` returns the tokens of the fullest rank: divide them by the mean of the ranks": (
                lambda counts, ranks: _slowest(counts, ranks) * sum(counts) / ranks
            ),
        },
    ),
}
