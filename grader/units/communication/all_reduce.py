"""The checks of all_reduce.py: the sum on every rank, and the messages that the algorithm sends."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.probes.exact import numbers

PROBE = "grader.units.communication.probes.all_reduce:all_reduce"


def _sum(case, length):
    return sum(numbers(case["seed"], rank, length) for rank in range(case["ranks"]))


def _of_lengths(seen, case):
    """(length, [what was found on each rank]) for each length."""
    return [(length, [of_rank["found"][place] for of_rank in seen]) for place, length in enumerate(case["lengths"])]


def sum_on_every_rank(seen, case, expected):
    for length, of_ranks in _of_lengths(seen, case):
        right = _sum(case, length)
        if used := next((found["collectives"][0] for found in of_ranks if found["collectives"]), None):
            return f"the collective {used!r} is called: build it from send and receive"
        wrong = [rank for rank, found in enumerate(of_ranks) if not criteria.close(found["tensor"], right)]
        if wrong:
            where = f"a tensor of {length} number{'s' * (length > 1)}: {criteria.ranks(wrong)} "
            own = all(criteria.close(of_ranks[rank]["tensor"], numbers(case["seed"], rank, length)) for rank in wrong)
            has = "has" if len(wrong) == 1 else "have"
            return where + (f"still {has} only what was there before" if own else f"{has} something else than the sum")
    return None


def sum_of_one_chunk(seen, case, expected):
    for length, of_ranks in _of_lengths(seen, case):
        if used := next((found["collectives"][0] for found in of_ranks if found["collectives"]), None):
            return f"the collective {used!r} is called: build it from send and receive"
        right = numpy.array_split(_sum(case, length), case["ranks"])
        for rank, found in enumerate(of_ranks):
            chunks, place = numpy.array_split(found["tensor"], case["ranks"]), (rank + 1) % case["ranks"]
            if not criteria.close(chunks[place], right[place]):
                other = next((number for number in range(case["ranks"]) if length >= case["ranks"] and criteria.close(chunks[number], right[number])), None)
                instead = f"; it has that of chunk {other}" if other is not None else ""
                return f"after the reduce-scatter, rank {rank} does not have the sum of chunk {place}{instead} (a tensor of {length} numbers)"
    return None


def only_to_the_right(seen, case, expected):
    """A judge: each rank sends N - 1 messages to its right neighbour, each of one chunk."""
    for length, of_ranks in _of_lengths(seen, case):
        longest = -(-length // case["ranks"])
        for rank, found in enumerate(of_ranks):
            if any(to != (rank + 1) % case["ranks"] for to, _, _ in found["messages"]):
                return f"rank {rank} sends to ranks {sorted({to for to, _, _ in found['messages']})}; in the ring it sends to its right neighbour only"
            if any(count > longest for _, count, _ in found["messages"]):
                most = max(count for _, count, _ in found["messages"])
                return f"rank {rank} sends {most} of {length} numbers at once; in the ring it sends one chunk at a time, {longest} at most"
            if len(found["messages"]) != case["ranks"] - 1:
                return f"rank {rank} sends {len(found['messages'])} messages; N - 1 = {case['ranks'] - 1} do"
    return None


def log_rounds(seen, case, expected):
    """A judge: in each of log2 N rounds every rank sends its numbers to one partner."""
    rounds = case["ranks"].bit_length() - 1
    for length, of_ranks in _of_lengths(seen, case):
        for rank, found in enumerate(of_ranks):
            partners = [to for to, _, _ in found["messages"]]
            if sorted(partners) != sorted(rank ^ (1 << number) for number in range(rounds)):
                return f"rank {rank} sends to ranks {partners}; its partners are {[rank ^ (1 << number) for number in range(rounds)]}, one in each round"
    return None


def through_rank_0(seen, case, expected):
    for length, of_ranks in _of_lengths(seen, case):
        counts = [len(found["messages"]) for found in of_ranks]
        if counts != [case["ranks"] - 1] + [1] * (case["ranks"] - 1):
            return f"the ranks send {counts} messages; rank 0 sends the sum to each of the others, and they send their numbers to rank 0"
    return None


def _check(gap, function, criteria, ranks):
    cases = tuple({"function": function, "ranks": number, "lengths": [7, 2, 1]} for number in ranks)
    return Check(gap, PROBE, cases, criteria, observed=_observed)


def _observed(case):
    return {"found": tuple({"tensor": Array((length,)), "messages": [(int, int, int)], "collectives": [str]} for length in case["lengths"])}


CHECKS = (
    _check(
        "naive", "naive",
        (
            Criterion("the sum, on every rank", 1, sum_on_every_rank, "Rank 0 adds up what it receives, then sends the sum to all others."),
            Criterion("everything goes through rank 0", 1, through_rank_0, "Each rank but rank 0 sends one message, and receives one.", needs="the sum, on every rank"),
        ), (3,),
    ),
    _check(
        "reduce_scatter", "ring",
        (
            Criterion("each rank has the sum of one chunk", 2, sum_of_one_chunk, "Send chunk (rank - step), add what arrives to chunk (rank - step - 1)."),
            Criterion("a chunk at a time, to the right neighbour", 1, only_to_the_right, "send(chunks[...], right), once in each step.", needs="each rank has the sum of one chunk"),
        ), (3,),
    ),
    _check(
        "all_gather", "ring",
        (
            Criterion("the sum, on every rank", 2, sum_on_every_rank, "Send chunk (rank + 1 - step); what arrives replaces chunk (rank - step)."),
            Criterion("a chunk at a time, to the right neighbour", 1, only_to_the_right, "send(chunks[...], right), once in each step.", needs="the sum, on every rank"),
        ), (3,),
    ),
    _check(
        "doubling", "doubling",
        (
            Criterion("the sum, on every rank", 2, sum_on_every_rank, "Both partners add what the other one sends; then the distance doubles."),
            Criterion("a partner in each round", 1, log_rounds, "The partner's rank differs in one bit: rank ^ distance.", needs="the sum, on every rank"),
        ), (4,),
    ),
)  # fmt: skip
