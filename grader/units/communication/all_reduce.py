"""The checks of all_reduce.py: the sum on every rank, and the messages that the algorithm sends."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.probes.exact import numbers

ROUNDED = 0.01  # what rounding to whole numbers or half precision changes, of the largest number, at most
PROBE = "grader.units.communication.probes.probe_all_reduce:all_reduce"


def _sum(case, length, ranks=None):
    """The sum of the numbers of some ranks, None for all."""
    return sum(numbers(case["seed"], rank, length) for rank in (range(case["ranks"]) if ranks is None else ranks))


def _of_lengths(seen, case):
    """(length, [what was found on each rank]) for each length."""
    return [(length, [of_rank["found"][place] for of_rank in seen]) for place, length in enumerate(case["lengths"])]


def _as_naive(of_ranks, case):
    """None, or a sentence if numbers are sent as in `naive` where another way is asked for."""
    if (
        case["function"] != "naive"
        and len(of_ranks) > 2
        and [len(found["messages"]) for found in of_ranks] == _through_rank_0(case)
    ):
        return (
            f"all numbers go through rank 0, as in `naive`; in `{case['function']}` each rank sends as much as every"
            " other rank"
        )
    return None


def _through_rank_0(case):
    """How many messages each rank sends."""
    return [case["ranks"] - 1] + [1] * (case["ranks"] - 1)


def sum_on_every_rank(seen, case, expected):
    for length, of_ranks in _of_lengths(seen, case):
        if problem := _as_naive(of_ranks, case):
            return problem
        right = _sum(case, length)
        if used := next((found["collectives"][0] for found in of_ranks if found["collectives"]), None):
            return f"the collective {used!r} is called: build it from send and receive"
        wrong = [rank for rank, found in enumerate(of_ranks) if not criteria.close(found["tensor"], right)]
        if wrong:
            where = f"a tensor of {length} number{'s' * (length > 1)}: {criteria.ranks(wrong)} "
            if what := _instead_of_the_sum(of_ranks[wrong[0]]["tensor"], case, length, wrong[0]):
                return f"a tensor of {length} numbers: rank {wrong[0]} has {what}; the sum has each rank's once"
            own = all(criteria.close(of_ranks[rank]["tensor"], numbers(case["seed"], rank, length)) for rank in wrong)
            has = "has" if len(wrong) == 1 else "have"
            if all(criteria.close(of_ranks[rank]["tensor"], right, ROUNDED) for rank in wrong):
                return where + f"{has} the sum, rounded: the numbers must keep the type of `tensor`"
            return where + (f"still {has} only what was there before" if own else f"{has} something else than the sum")
    return None


def _instead_of_the_sum(found, case, length, rank):
    """What is in a rank's tensor, or in its first chunk that is wrong, if that is added up of the ranks' numbers."""
    everybodys = [numbers(case["seed"], other, length) for other in range(case["ranks"])]
    if times := criteria.shares(found, everybodys):
        return criteria.words_of_shares(times, rank)
    for place in range(case["ranks"]):
        chunk, parts = (
            numpy.array_split(one, case["ranks"])[place] for one in (found, numpy.stack(everybodys, axis=1))
        )
        if not criteria.close(chunk, parts.sum(axis=1)):
            what = _what_it_holds(chunk, case, length, rank)
            return f"at the place of chunk {place} {what}" if what else ""
    return ""


def _what_it_holds(found, case, length, rank):
    """What some numbers are, if they are a chunk added up of the ranks' numbers: which chunk, and whose; else ""."""
    for place in range(case["ranks"]):
        parts = [
            numpy.array_split(numbers(case["seed"], other, length), case["ranks"])[place]
            for other in range(case["ranks"])
        ]
        if len(parts[0]) and any(times := criteria.shares(found[: len(parts[0])], parts) or ()):
            return f"chunk {place}, with {criteria.words_of_shares(times, rank)}"
    return ""


def sum_of_one_chunk(seen, case, expected):
    for length, of_ranks in _of_lengths(seen, case):
        if problem := _as_naive(of_ranks, case):
            return problem
        if used := next((found["collectives"][0] for found in of_ranks if found["collectives"]), None):
            return f"the collective {used!r} is called: build it from send and receive"
        right = numpy.array_split(_sum(case, length), case["ranks"])
        for rank, found in enumerate(of_ranks):
            chunks, place = numpy.array_split(found["tensor"], case["ranks"]), (rank + 1) % case["ranks"]
            if not criteria.close(chunks[place], right[place]):
                other = next(
                    (
                        number
                        for number in range(case["ranks"])
                        if length >= case["ranks"] and criteria.close(chunks[number], right[number])
                    ),
                    None,
                )
                held = _what_it_holds(chunks[place], case, length, rank)
                instead = (
                    f"; it has that of chunk {other}"
                    if other is not None
                    else f"; at its place is {held}"
                    if held
                    else ""
                )
                return (
                    f"after the reduce-scatter, rank {rank} does not have the sum of chunk {place}{instead} (a tensor"
                    f" of {length} numbers)"
                )
    return None


def _holds(message, right):
    """Whether a message has these numbers; behind them it may be filled up to the length of other messages."""
    return criteria.close(message["numbers"][: len(right)], right)


def _too_long(of_ranks, length):
    """None, or a sentence on a message with more numbers than the tensor has."""
    for rank, found in enumerate(of_ranks):
        if (most := max((len(message["numbers"]) for message in found["messages"]), default=0)) > length:
            return f"rank {rank} sends {most} numbers at once; the tensor has {length}"
    return None


def sums_so_far(case, length, rank, place, step):
    """(what a message of the reduce-scatter holds, in words; its numbers). place: that of the chunk; all ranks from
    `place` on have added theirs."""
    others = [(place + more) % case["ranks"] for more in range(step + 1)]
    return (
        f"chunk {place} of {criteria.ranks(sorted(others))}, added up",
        numpy.array_split(_sum(case, length, others), case["ranks"])[place],
    )


def sums(case, length, rank, place, step):
    """As `sums_so_far`, for the all-gather."""
    place = (place + 1) % case["ranks"]
    return f"the sum of chunk {place}", numpy.array_split(_sum(case, length), case["ranks"])[place]


def only_to_the_right(holds):
    """A judge: each rank sends N - 1 messages to its right neighbour, each of one chunk. holds(case, length, rank,
    place, step): what it holds."""

    def judge(seen, case, expected):
        ranks = case["ranks"]
        for length, of_ranks in _of_lengths(seen, case):
            longest = -(-length // ranks)
            for rank, found in enumerate(of_ranks):
                messages, right = found["messages"], (rank + 1) % ranks
                if others := sorted({message["to"] for message in messages} - {right}):
                    return (
                        f"rank {rank} sends to {criteria.ranks(others)}; in the ring it sends to its right neighbour"
                        " only"
                    )
                if (most := max((len(message["numbers"]) for message in messages), default=0)) > longest:
                    return (
                        f"rank {rank} sends {most} of {length} numbers at once; in the ring it sends one chunk at a"
                        f" time, {longest} at most"
                    )
                if len(messages) != ranks - 1:
                    return f"rank {rank} sends {len(messages)} messages; N - 1 = {ranks - 1} do"
                for step, message in enumerate(messages):
                    what, numbers = holds(case, length, rank, (rank - step) % ranks, step)
                    if not _holds(message, numbers):
                        held = _what_it_holds(message["numbers"], case, length, rank)
                        return (
                            f"rank {rank} should send in step {step} {what}"
                            + (f"; it sends {held}" if held else "; it sends other numbers")
                            + f" (a tensor of {length} numbers)"
                        )
        return None

    return judge


def log_rounds(seen, case, expected):
    """A judge: in each of log2 N rounds every rank sends to one partner the sum of the ranks that it has heard of,
    itself included."""
    rounds = case["ranks"].bit_length() - 1
    for length, of_ranks in _of_lengths(seen, case):
        if problem := _too_long(of_ranks, length):
            return problem
        for rank, found in enumerate(of_ranks):
            partners = [message["to"] for message in found["messages"]]
            if sorted(partners) != sorted(rank ^ (1 << number) for number in range(rounds)):
                return (
                    f"rank {rank} sends to ranks {partners}; its partners are"
                    f" {[rank ^ (1 << number) for number in range(rounds)]}, one in each round"
                )
        for rank, found in enumerate(of_ranks):
            known = {rank}
            for number, message in enumerate(found["messages"]):
                if not _holds(message, _sum(case, length, known)):
                    return (
                        f"what rank {rank} sends in round {number} is not the sum of {criteria.ranks(sorted(known))},"
                        " which it has by then"
                    )
                known |= {rank ^ message["to"] ^ other for other in known}
    return None


def through_rank_0(seen, case, expected):
    for length, of_ranks in _of_lengths(seen, case):
        counts = [len(found["messages"]) for found in of_ranks]
        if counts != _through_rank_0(case):
            return (
                f"the ranks send {counts} messages; rank 0 sends the sum to each of the others, and they send their"
                " numbers to rank 0"
            )
        if problem := _too_long(of_ranks, length):
            return problem
        for rank, found in enumerate(of_ranks):
            what, right = (
                ("the sum", _sum(case, length)) if rank == 0 else ("its own numbers", _sum(case, length, [rank]))
            )
            if not all(_holds(message, right) for message in found["messages"]):
                return (
                    f"what rank {rank} sends is not {what}: the sum is made on rank 0, from what the other ranks send"
                )
    return None


def _check(gap, function, criteria, ranks):
    # 13: each of three chunks is long enough to show whose numbers were added up
    cases = tuple({"function": function, "ranks": number, "lengths": [13, 2, 1]} for number in ranks)
    return Check(gap, PROBE, cases, criteria, observed=_observed)


def _observed(case):
    message = {"to": int, "numbers": Array((None,))}
    return {
        "found": tuple(
            {"tensor": Array((length,)), "messages": [message], "collectives": [str]} for length in case["lengths"]
        )
    }


CHECKS = (
    _check(
        "naive",
        "naive",
        (
            Criterion(
                "sum_on_every_rank",
                "the sum, on every rank",
                1,
                sum_on_every_rank,
                "Rank 0 adds up what it receives, then sends the sum to all others.",
            ),
            Criterion(
                "through_rank_0",
                "everything goes through rank 0",
                1,
                through_rank_0,
                "Each rank but rank 0 sends one message, and receives one.",
                needs="sum_on_every_rank",
            ),
        ),
        (3,),
    ),
    _check(
        "reduce_scatter",
        "ring",
        (
            Criterion(
                "sum_of_one_chunk",
                "each rank has the sum of one chunk",
                2,
                sum_of_one_chunk,
                "Send chunk (rank - step) % size, add what arrives to chunk (rank - step - 1) % size.",
            ),
            Criterion(
                "one_chunk_to_the_right",
                "a chunk at a time, to the right neighbour",
                1,
                only_to_the_right(sums_so_far),
                "send(chunks[...], right), once in each step.",
                needs="sum_of_one_chunk",
            ),
        ),
        (3,),
    ),
    _check(
        "all_gather",
        "ring",
        (
            Criterion(
                "sum_on_every_rank",
                "the sum, on every rank",
                2,
                sum_on_every_rank,
                "Send chunk (rank + 1 - step) % size; what arrives replaces chunk (rank - step) % size.",
            ),
            Criterion(
                "one_chunk_to_the_right",
                "a chunk at a time, to the right neighbour",
                1,
                only_to_the_right(sums),
                "send(chunks[...], right), once in each step.",
                needs="sum_on_every_rank",
            ),
        ),
        (3,),
    ),
    _check(
        "doubling",
        "doubling",
        (
            Criterion(
                "sum_on_every_rank",
                "the sum, on every rank",
                2,
                sum_on_every_rank,
                "Both partners add what the other one sends; then the distance doubles.",
            ),
            Criterion(
                "partner_each_round",
                "a partner in each round",
                1,
                log_rounds,
                "The partner's rank differs in one bit: rank ^ distance.",
                needs="sum_on_every_rank",
            ),
        ),
        (4,),
    ),
)
