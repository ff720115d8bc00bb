"""The checks of all_reduce.py: the sum on every rank, and the messages of each algorithm."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.probes.exact import numbers

ROUNDED = 0.01  # the largest error of rounding to whole numbers or to half precision, relative to the largest number
PROBE = "grader.units.communication.probes.probe_all_reduce:all_reduce"


def _sum(case, length, ranks=None):
    """Return the sum of the numbers of some ranks; None means all ranks."""
    return sum(numbers(case["seed"], rank, length) for rank in (range(case["ranks"]) if ranks is None else ranks))


def _of_lengths(seen, case):
    """Return (length, [the findings of each rank]) for each length."""
    return [(length, [of_rank["found"][place] for of_rank in seen]) for place, length in enumerate(case["lengths"])]


def _as_naive(of_ranks, case):
    """Return a sentence if another function sends its numbers as `naive` does, or None."""
    if (
        case["function"] != "naive"
        and len(of_ranks) > 2
        and [len(found["messages"]) for found in of_ranks] == _through_rank_0(case)
    ):
        return (
            f"all numbers pass through rank 0, as in `naive`; in `{case['function']}`, all ranks send equally many"
            " messages"
        )
    return None


def _through_rank_0(case):
    """Return how many messages each rank sends."""
    return [case["ranks"] - 1] + [1] * (case["ranks"] - 1)


def _collective(of_ranks):
    """Return a sentence on the first collective that a rank calls, or None."""
    used = next((found["collectives"][0] for found in of_ranks if found["collectives"]), None)
    return used and f"your code calls the collective {used!r}: use send and receive instead"


def _tensor(length):
    """Return the case that a sentence is about."""
    return f" (a tensor of {length} number{'s' * (length > 1)})"


def sum_on_every_rank(seen, case, expected):
    for length, of_ranks in _of_lengths(seen, case):
        if problem := _as_naive(of_ranks, case):
            return problem
        right = _sum(case, length)
        if problem := _collective(of_ranks):
            return problem
        wrong = [rank for rank, found in enumerate(of_ranks) if not criteria.close(found["tensor"], right)]
        if wrong:
            own = all(criteria.close(of_ranks[rank]["tensor"], numbers(case["seed"], rank, length)) for rank in wrong)
            what = "" if own else _instead_of_the_sum(of_ranks[wrong[0]]["tensor"], case, length, wrong[0])
            if what:
                return f"on rank {wrong[0]}, {what}; the sum has the numbers of every rank once{_tensor(length)}"
            rounded = all(criteria.close(of_ranks[rank]["tensor"], right, ROUNDED) for rank in wrong)
            who = criteria.ranks(wrong)
            if rounded:
                return f"on {who}, `tensor` has the sum, but rounded: keep the type of `tensor`{_tensor(length)}"
            if own:
                return (
                    f"on {who}, `tensor` is unchanged: change it in place, with += or copy_(), as `tensor = ...` only"
                    f" names another tensor{_tensor(length)}"
                )
            return f"on {who}, `tensor` does not have the sum{_tensor(length)}"
    return None


def _instead_of_the_sum(found, case, length, rank):
    """Return the content of a rank's tensor, or of its first wrong chunk, in words, if it is a sum of the ranks'
    numbers, or otherwise ""."""
    everybodys = [numbers(case["seed"], other, length) for other in range(case["ranks"])]
    if times := criteria.shares(found, everybodys):
        return f"`tensor` has {criteria.words_of_shares(times, rank)}"
    for place in range(case["ranks"]):
        chunk, parts = (
            numpy.array_split(one, case["ranks"])[place] for one in (found, numpy.stack(everybodys, axis=1))
        )
        if not criteria.close(chunk, parts.sum(axis=1)):
            what = _what_it_holds(chunk, case, length, rank, place)
            added = case["function"] == "ring" and max(criteria.shares(chunk, list(parts.T)) or [0]) > 1
            why = ", so the chunk that arrives is added: replace yours with it" if added else ""
            return f"chunk {place} of `tensor` has {what}{why}" if what else ""
    return ""


def _what_it_holds(found, case, length, rank, due=None):
    """Return in words which chunk some numbers are, and from which ranks, if they are a sum of the ranks' chunks, or
    otherwise "". The chunk with the number `due` is not named."""
    for place in range(case["ranks"]):
        parts = [
            numpy.array_split(numbers(case["seed"], other, length), case["ranks"])[place]
            for other in range(case["ranks"])
        ]
        if len(parts[0]) and any(times := criteria.shares(found[: len(parts[0])], parts) or ()):
            whose = criteria.words_of_shares(times, rank)
            return whose if place == due else f"chunk {place} with {whose}"
    return ""


def _replaced(chunk, case, length, rank, place):
    """Return whether a chunk has numbers of other ranks, but none of its own rank."""
    parts = [
        numpy.array_split(numbers(case["seed"], other, length), case["ranks"])[place] for other in range(case["ranks"])
    ]
    times = criteria.shares(chunk, parts)
    return bool(times) and any(times) and times[rank] == 0


def sum_of_one_chunk(seen, case, expected):
    for length, of_ranks in _of_lengths(seen, case):
        if problem := _as_naive(of_ranks, case):
            return problem
        if problem := _collective(of_ranks):
            return problem
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
                held = _what_it_holds(chunks[place], case, length, rank, place)
                if held and _replaced(chunks[place], case, length, rank, place):
                    held += ", so the chunk that arrives replaces yours: add it"
                instead = (
                    f"; it has the sum of chunk {other}"
                    if other is not None
                    else f"; its chunk {place} has {held}"
                    if held
                    else ""
                )
                return (
                    f"after the reduce-scatter, rank {rank} does not have the sum of chunk"
                    f" {place}{instead}{_tensor(length)}"
                )
    return None


def _holds(message, right):
    """Return whether a message starts with these numbers; it may be padded to the length of other messages."""
    return criteria.close(message["numbers"][: len(right)], right)


def _too_long(of_ranks, length):
    """Return a sentence on a message with more numbers than the tensor has, or None."""
    for rank, found in enumerate(of_ranks):
        if (most := max((len(message["numbers"]) for message in found["messages"]), default=0)) > length:
            return f"rank {rank} sends a message of {most} numbers, but `tensor` has only {length}"
    return None


def sums_so_far(case, length, rank, place, step):
    """Return (the content of a message of the reduce-scatter, in words; its numbers). place: the number of the chunk,
    to which all ranks starting at `place` have added their numbers."""
    others = [(place + more) % case["ranks"] for more in range(step + 1)]
    whose = f"chunk {place} with the numbers of {criteria.ranks(sorted(others))}"
    return (
        f"{whose} added up" if step > 0 else whose,
        numpy.array_split(_sum(case, length, others), case["ranks"])[place],
    )


def sums(case, length, rank, place, step):
    """Like `sums_so_far`, but for the all-gather."""
    place = (place + 1) % case["ranks"]
    return f"the sum of chunk {place}", numpy.array_split(_sum(case, length), case["ranks"])[place]


def only_to_the_right(holds):
    """Return a judge: each rank sends N - 1 messages to its right neighbour, each with one chunk. holds(case, length,
    rank, place, step): returns the content of a message."""

    def judge(seen, case, expected):
        ranks = case["ranks"]
        for length, of_ranks in _of_lengths(seen, case):
            longest = -(-length // ranks)
            for rank, found in enumerate(of_ranks):
                messages, right = found["messages"], (rank + 1) % ranks
                if others := sorted({message["to"] for message in messages} - {right}):
                    return (
                        f"rank {rank} sends to {criteria.ranks(others)}; in the ring, it sends only to its right"
                        f" neighbour, rank {right}"
                    )
                if (most := max((len(message["numbers"]) for message in messages), default=0)) > longest:
                    return (
                        f"rank {rank} sends a message of {most} numbers; in the ring, a message is one chunk, which has"
                        f" at most {longest} of the {length} numbers"
                    )
                if len(messages) != ranks - 1:
                    return (
                        f"rank {rank} sends {len(messages)} message{'s' * (len(messages) != 1)}; it should send N - 1 ="
                        f" {ranks - 1}, one in each step"
                    )
                for step, message in enumerate(messages):
                    what, numbers = holds(case, length, rank, (rank - step) % ranks, step)
                    if not _holds(message, numbers):
                        held = _what_it_holds(message["numbers"], case, length, rank)
                        return (
                            f"in step {step}, rank {rank} should send {what}; it sends"
                            f" {held or 'other numbers'}{_tensor(length)}"
                        )
        return None

    return judge


def log_rounds(seen, case, expected):
    """Judge that in each of log2 N rounds, every rank sends one partner the sum of the numbers that have reached it,
    including its own."""
    rounds = case["ranks"].bit_length() - 1
    for length, of_ranks in _of_lengths(seen, case):
        if problem := _too_long(of_ranks, length):
            return problem
        for rank, found in enumerate(of_ranks):
            partners = [message["to"] for message in found["messages"]]
            if sorted(partners) != sorted(rank ^ (1 << number) for number in range(rounds)):
                return (
                    f"rank {rank} sends to {criteria.ranks(partners) if partners else 'no rank'}; its partners are"
                    f" {criteria.ranks([rank ^ (1 << number) for number in range(rounds)])}, one per round"
                )
        for rank, found in enumerate(of_ranks):
            known = {rank}
            for number, message in enumerate(found["messages"]):
                if not _holds(message, _sum(case, length, known)):
                    what = f"the sum of {criteria.ranks(sorted(known))}" if number else "its own numbers"
                    return f"in round {number}, rank {rank} should send {what}; it sends other numbers"
                known |= {rank ^ message["to"] ^ other for other in known}
    return None


def through_rank_0(seen, case, expected):
    for length, of_ranks in _of_lengths(seen, case):
        counts = [len(found["messages"]) for found in of_ranks]
        if counts != _through_rank_0(case):
            return (
                f"ranks 0 to {len(counts) - 1} send {', '.join(map(str, counts))} messages; rank 0 should send the sum"
                " to each other rank, and each other rank should send one message, to rank 0"
            )
        if problem := _too_long(of_ranks, length):
            return problem
        for rank, found in enumerate(of_ranks):
            what, right = (
                ("the sum", _sum(case, length)) if rank == 0 else ("its own numbers", _sum(case, length, [rank]))
            )
            if not all(_holds(message, right) for message in found["messages"]):
                return f"rank {rank} does not send {what}: rank 0 adds up the numbers that the other ranks send"
    return None


def _check(gap, function, criteria, ranks):
    # 13: each of the three chunks is long enough to show whose numbers were added up
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
                "every rank has the sum",
                1,
                sum_on_every_rank,
                "Rank 0 adds the tensors that it receives to its own, then sends the sum to all other ranks.",
            ),
            Criterion(
                "through_rank_0",
                "all numbers pass through rank 0",
                1,
                through_rank_0,
                "Every rank except rank 0 sends one message and receives one message.",
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
                "Send chunk (rank - step) % size, and add the message that arrives to chunk (rank - step - 1) % size.",
            ),
            Criterion(
                "one_chunk_to_the_right",
                "each rank sends one chunk per step, to its right neighbour",
                1,
                only_to_the_right(sums_so_far),
                "Call send(chunks[...], right) once per step.",
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
                "every rank has the sum",
                2,
                sum_on_every_rank,
                "Send chunk (rank + 1 - step) % size, and replace chunk (rank - step) % size with the message that"
                " arrives.",
            ),
            Criterion(
                "one_chunk_to_the_right",
                "each rank sends one chunk per step, to its right neighbour",
                1,
                only_to_the_right(sums),
                "Call send(chunks[...], right) once per step.",
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
                "every rank has the sum",
                2,
                sum_on_every_rank,
                "Both partners add the tensor that they receive; then the distance doubles.",
            ),
            Criterion(
                "partner_each_round",
                "each rank exchanges with one partner per round",
                1,
                log_rounds,
                "The partner's rank differs in one bit: rank ^ distance.",
                needs="sum_on_every_rank",
            ),
        ),
        (4,),
    ),
)
