"""Say which ranks wait for which, and why none of them continues, from what each rank did when it was stopped."""

from grader.checks import criteria
from grader.sandbox.rank_waits import RECEIVE, SEND

RECEIVE_FIRST = "start the receive first, then send, then wait for both"


def sentence(outcomes, place):
    """Return a sentence on ranks that wait for each other.

    outcomes: the RankOutcome of each rank, at least one of which waits; place(line): where a line of the student's code
    is.
    """
    lines = {one.line for one in outcomes if one.line}
    if all(_has_ended(one) or _collective(one) for one in outcomes):
        found = _in_collectives(outcomes)
        where = f" ({place(min(lines))})" if lines else ""
    else:
        found = _in_messages(outcomes, place if len(lines) > 1 else None)
        where = f" ({place(*lines)})" if len(lines) == 1 else ""
    waits, why = found
    return criteria.with_reason(f"{waits}{where}", why)


def _has_ended(one):
    """Return whether a rank has run the student's code to its end; the check's own barrier may follow."""
    return one.status is None or not one.line and "barrier" in (one.waiting, *(one.waits_for or ())[:1])


def _message(one):
    """Return [SEND or RECEIVE, the other rank, the ranks from which it expects other messages], or None."""
    return one.waits_for if one.waits_for and one.waits_for[0] in (SEND, RECEIVE) and not _has_ended(one) else None


def _collective(one):
    """Return the name of the collective in which a rank waits, or ""."""
    noted = (one.waits_for or [""])[0]  # a stack names backward for a collective that a hook of the student waits for
    return "" if _message(one) else noted if noted and "backward" in one.waiting else one.waiting or noted


def _in_collectives(outcomes):
    """Return (which ranks wait in which collective, the reason or "")."""
    waiting = {rank: one for rank, one in enumerate(outcomes) if not _has_ended(one)}
    of_names, roots = {}, {one.waits_for[1] for one in waiting.values() if one.waits_for}
    for rank, one in waiting.items():
        root = f" with rank {one.waits_for[1]} as its root" if one.waits_for and len(roots) > 1 else ""
        of_names.setdefault(_collective(one) + root, []).append(rank)
    waits = "; ".join(
        f"{criteria.ranks(numbers)} wait{'s' * (len(numbers) == 1)} in {name}" for name, numbers in of_names.items()
    )
    if others := [rank for rank in range(len(outcomes)) if rank not in waiting]:
        return f"{waits}, but {criteria.ranks(others)} never got there", ""
    if len({_collective(one) for one in waiting.values()}) > 1:
        return waits, "all ranks must call the same collectives, in the same order"
    return waits, "all ranks must name the same root" if len(roots) > 1 else ""


def _in_messages(outcomes, place):
    """Return (what each rank waits for, the reason or ""). place: as in `sentence`, or None to leave out the lines."""
    of_states = {}
    for rank, one in enumerate(outcomes):
        line = place(one.line) if place and one.line else ""
        of_states.setdefault((_has_ended(one), str((_message(one) or [])[:2]), _collective(one), line), []).append(rank)
    states = [_state(ranks, outcomes[ranks[0]], line) for (*_, line), ranks in of_states.items()]
    return "; ".join(states), _reason(outcomes)


def _state(ranks, one, line):
    """Return what `ranks` do, all of which are like `one`."""
    who, s, at = criteria.ranks(ranks), "s" * (len(ranks) == 1), f" ({line})" if line else ""
    if _has_ended(one):
        return f"{who} {'has' if s else 'have'} ended"
    if not _message(one):
        return f"{who} wait{'s' * bool(s)} in {_collective(one) or 'other code'}{at}"
    what, other, _ = _message(one)
    whom = "any rank" if other is None else criteria.ranks([other])
    return (
        f"{who} wait{'s' * bool(s)} for a message from {whom}{at}"
        if what == RECEIVE
        else f"{who} wait{'s' * bool(s)} until {whom} receives a message{at}"
    )


def _reason(outcomes):
    """Return why ranks that wait for messages do not continue, or ""."""
    messages = {rank: _message(one) for rank, one in enumerate(outcomes) if _message(one)}
    if collective := next((_collective(one) for one in outcomes if _collective(one) and not _has_ended(one)), ""):
        return f"{collective} ends only after all ranks have called it"
    for rank, (what, other, _) in messages.items():
        if what == SEND and (sources := _expected_by(messages.get(other))) and not {rank, None} & sources:
            return (
                f"rank {rank} sends to rank {other}, but rank {other} expects a message from"
                f" {criteria.ranks(sorted(sources))}: both sides of a message must name each other"
            )
    for rank, (what, other, _) in messages.items():
        if other is not None and other < len(outcomes) and _has_ended(outcomes[other]):
            return f"rank {other} never {'receives' if what == SEND else 'sends'} this message"
    kinds = {what for what, *_ in messages.values()}
    if kinds == {RECEIVE}:
        return f"every rank waits to receive before it sends: {RECEIVE_FIRST}"
    if kinds == {SEND} and not any(expected for *_, expected in messages.values()):
        return f"every rank waits for its send before it starts to receive: {RECEIVE_FIRST}"
    return ""


def _expected_by(message):
    """Return the ranks from which a rank expects messages, as a set; None stands for any rank."""
    if not message:
        return set()
    what, other, expected = message
    return {*expected, *([other] if what == RECEIVE else [])}
