"""The answers to the gaps in notebook 04_profiling: inputs, what is right, and typical mistakes."""

from itertools import accumulate

import numpy

from grader.instructors.notebook_answers import Choice, Function


def _waits(chance):
    """Return how long each of some ranks waits for each other rank. The rank that waits most, and the rank for which
    it waits, have low numbers in some calls and high numbers in others. Each of them comes first in one call and
    last in another. Another rank (`longest`) has the longest single wait.

    In half of the calls, a third rank waits equally long for each other rank. Its shortest wait, its median and the
    product of its waits are the longest. With more than three ranks, it also has most of the long waits, and waits
    longer than the other rank in most pairs of ranks.

    In the other half, ranks also wait for the rank that waits most. With four ranks, `longest` has the largest sum
    of two waits and the largest net wait, and the least wait for `third` is the largest. With more than three ranks,
    the rank for which all wait most is not the rank that waits least.
    """
    ranks = list(range(chance.turn([4, 3, 5])))
    chance.shuffle(ranks)
    low = chance.randint(0, 1)
    most = chance.turn([low, ranks[-1], 1 - low, ranks[0], max(ranks), chance.choice(ranks)])
    others = sorted(set(ranks) - {most})
    target = chance.turn([chance.choice(others), others[0], others[-1]])
    even, few = chance.turn([True, False]), len(ranks) == 3
    if even and not few:  # at the begin or the end, so that the check finds an answer that leaves out an end
        ranks.sort(key=lambda rank: rank == target, reverse=chance.call == 0)
    longest = target if even else chance.choice([rank for rank in others if rank != target])
    third, *fourth = [rank for rank in others if rank not in (longest, target)] or [target]
    of_third, of_most, of_target = (0.003, 0.004), (0.01, 0.012), (0.0145, 0.015)
    if even:
        of_third, of_most = (0.01, 0.0102), (0.009, 0.0092)
    if even and not few:
        of_third, of_most, of_target = (0.0092, 0.0094), (0.009, 0.0091), (0.0195, 0.0196)
    waits = {
        rank: {other: chance.uniform(*(of_third if rank == third else (0, 0.001))) for other in ranks if other != rank}
        for rank in ranks
    }
    waits[most] |= {other: chance.uniform(*of_most) for other in others if not (even and other in fourth[:1])} | {
        target: chance.uniform(*of_target)
    }
    waits[longest][third] = 0.02
    if even and fourth:
        waits[fourth[0]][most] = 0.0095
    if not even:
        waits[target][most] = 0.007 if few else 0.0135
        waits[longest] |= {} if few else {most: 0.0105}
    if not even and not few:
        waits[target][third] = 0.0015
    return {"waits": waits}


def _meetings(chance):
    """Return the times at which ranks enter some collectives, and the times at which they return."""
    ranks, collectives = chance.turn([3, 4, 2]), chance.turn([5, 6, 4, 7])
    times = numpy.array([_meeting(chance, number, ranks) for number in range(collectives)])
    return {"begin": times[:, 0], "end": times[:, 1]}


def _meeting(chance, collective, ranks):
    begin = [collective + chance.uniform(0, 0.3) for _ in range(ranks)]
    return begin, [max(begin) + chance.uniform(0.01, 0.2) for _ in range(ranks)]


def _spans(chance, count):
    """Spans that don't overlap each other."""
    edges = list(accumulate(chance.uniform(0.05, 0.2) for _ in range(2 * count)))
    return list(zip(edges[::2], edges[1::2]))


def _two_lists(chance):
    """Return spans of computation and of communication. In turns:

    - arbitrary spans
    - some spans begin where others end, one lies within another, and one overlaps two others
    - one span overlaps three others
    - a computation overlaps two communications, and one of these lies within it
    """
    compute = _spans(chance, 4)
    (a, b), (c, d), (e, f), (g, h) = compute
    some_hidden = [((a + b) / 2, b), (b + (c - b) / 3, (c + d) / 2), (d, (d + e) / 2), (e + (f - e) / 4, h + 0.1)]
    three_at_once = [(a / 2, (f + g) / 2), ((g + h) / 2, h + 0.1)]
    one_meets_two = [(c + (d - c) / 5, c + (d - c) / 3), (c + (d - c) / 2, (e + f) / 2)]
    return {
        "compute": compute,
        "communication": chance.turn([_spans(chance, 3), some_hidden, three_at_once, one_meets_two]),
    }


def _who_waits(waits):
    _, waiter = max((sum(of_rank.values()), rank) for rank, of_rank in waits.items())
    return waiter, max((seconds, other) for other, seconds in waits[waiter].items())[1]


def _longest_wait(waits):
    return max(((rank, other) for rank in waits for other in waits[rank]), key=lambda pair: waits[pair[0]][pair[1]])


def _waited_for(waits):
    return max(waits, key=lambda rank: sum(of_rank.get(rank, 0) for of_rank in waits.values()))


def _waiting(begin):
    return begin.max(axis=1, keepdims=True) - begin


def _waiting_share(begin, end):
    return _waiting(begin).sum(axis=0) / (end - begin).sum(axis=0)


def _both(compute, communication):
    return sum(max(0, min(end, to) - max(begin, since)) for begin, end in compute for since, to in communication)


def _length(spans):
    return sum(end - begin for begin, end in spans)


ANSWERS = {
    "who_waits": Function(
        _waits,
        _who_waits,
        {
            "`who_waits` returns the two ranks in the wrong order: the rank that waits comes first": lambda waits: (
                _who_waits(waits)[::-1]
            ),
            (
                "`who_waits` looks for the longest single wait: a rank may wait for several others, so add up its waits"
            ): _longest_wait,
            "`who_waits` starts with the rank that the others wait for most: start with the rank that waits most": (
                lambda waits: (_waited_for(waits), max(waits[_waited_for(waits)], key=waits[_waited_for(waits)].get))
            ),
            (
                "the second rank of `who_waits` is the one that all ranks together wait for most: return the one that"
                " the first rank waits for most"
            ): lambda waits: (_who_waits(waits)[0], _waited_for(waits)),
            (
                "`who_waits` returns the rank that waits most and its longest wait: return the rank that it waits for"
                " instead of the seconds"
            ): (lambda waits: (_who_waits(waits)[0], max(waits[_who_waits(waits)[0]].values()))),
            "`who_waits` returns seconds: return the ranks": lambda waits: (
                sum(waits[_who_waits(waits)[0]].values()),
                max(waits[_who_waits(waits)[0]].values()),
            ),
        },
    ),
    "waiting_share": Function(
        _meetings,
        _waiting_share,
        {
            "`waiting_share` returns percent: 1 is the whole time": lambda begin, end: 100 * _waiting_share(begin, end),
            "`waiting_share` returns the share that is *not* waiting": lambda begin, end: (
                1 - _waiting_share(begin, end)
            ),
            "`waiting_share` measures from the first rank: a rank waits for the last one": lambda begin, end: (
                (begin - begin.min(axis=1, keepdims=True)).sum(axis=0) / (end - begin).sum(axis=0)
            ),
            "`waiting_share` returns the seconds of waiting: divide them by the seconds in all-reduces": (
                lambda begin, end: _waiting(begin).sum(axis=0)
            ),
            (
                "`waiting_share` averages the shares of the all-reduces, so a short one counts as much as a long one:"
                " divide the sums"
            ): (lambda begin, end: (_waiting(begin) / (end - begin)).mean(axis=0)),
            (
                "`waiting_share` divides each rank's waiting by the time of all ranks: divide it by the rank's own time"
            ): lambda begin, end: _waiting(begin).sum(axis=0) / (end - begin).sum(),
            (
                "`waiting_share` counts the time until the last rank leaves: a rank waits until the last one enters"
                " (`begin`)"
            ): lambda begin, end: (end.max(axis=1, keepdims=True) - begin).sum(axis=0) / (end - begin).sum(axis=0),
            "`waiting_share` returns one number for all ranks: return one for each rank": lambda begin, end: (
                _waiting(begin).sum() / (end - begin).sum()
            ),
            (
                "`waiting_share` returns one number for each all-reduce: sum over the all-reduces, axis 0"
            ): lambda begin, end: _waiting(begin).sum(axis=1) / (end - begin).sum(axis=1),
        },
    ),
    "overlap": Function(
        _two_lists,
        lambda compute, communication: _both(compute, communication) / _length(communication),
        {
            "`overlap` returns percent: 1 is all of the communication": lambda compute, communication: (
                100 * _both(compute, communication) / _length(communication)
            ),
            "`overlap` returns the share that is *not* hidden": lambda compute, communication: (
                1 - _both(compute, communication) / _length(communication)
            ),
            "`overlap` divides by all computation: divide by all communication": lambda compute, communication: (
                _both(compute, communication) / _length(compute)
            ),
            "`overlap` returns seconds: divide them by all communication": _both,
            "`overlap` adds something negative for pairs of spans that do not overlap: add `max(0, ...)`": (
                lambda compute, communication: (
                    sum(min(end, to) - max(begin, since) for begin, end in compute for since, to in communication)
                    / _length(communication)
                )
            ),
            (
                "`overlap` counts a whole span of communication if any part of it overlaps: count only the time in"
                " which the two overlap"
            ): (
                lambda compute, communication: (
                    sum(
                        to - since
                        for since, to in communication
                        if any(begin < to and since < end for begin, end in compute)
                    )
                    / _length(communication)
                )
            ),
            (
                "`overlap` counts a whole span even if it only touches a computation: count only the time in which"
                " the two overlap"
            ): (
                lambda compute, communication: (
                    sum(
                        to - since
                        for since, to in communication
                        if any(begin <= to and since <= end for begin, end in compute)
                    )
                    / _length(communication)
                )
            ),
            (
                "`overlap` compares the first span with the first, the second with the second, and so on: a span of"
                " communication may overlap several computations, so compare all pairs"
            ): lambda compute, communication: (
                sum(
                    max(0, min(end, to) - max(begin, since))
                    for (begin, end), (since, to) in zip(compute, communication)
                )
                / _length(communication)
            ),
            (
                "`overlap` counts only spans that are completely hidden: count the hidden part of every span"
            ): lambda compute, communication: (
                sum(to - since for begin, end in compute for since, to in communication if begin <= since and to <= end)
                / _length(communication)
            ),
        },
    ),
    "bottleneck": Choice(
        "loading",
        {
            "compute": (
                "`bottleneck` is not the computation: it takes long, but it is what the GPU is for, so which other"
                " part is large?"
            ),
            "waiting": (
                "`bottleneck` is not the waiting, which is an effect: what do the ranks do while others wait for them?"
            ),
        }
        | dict.fromkeys(
            ("copy", "communication", "host"),
            ("`bottleneck` names a small part of the steps: look at the table's columns again"),
        ),
        "{!r} is not one of the parts: look at the table's columns again",
    ),
    "slow_rank": Choice(
        0,
        {1: "`slow_rank` is the rank that waits: look for the rank that computes during that time"},
        "this run has no rank {:g}",
    ),
    "collectives": Choice(
        3,
        {
            2: (
                "`collectives` counts the names, or only the all-reduces: add up the calls of all names, and note"
                " that a step calls all-reduce twice"
            ),
            1: "`collectives` counts only the all-reduce of the gradients: which other collectives are in the list?",
        },
        "{:g} is not the number of calls per step of all collectives together",
    ),
}
