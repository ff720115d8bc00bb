"""Ranks that hang: the student reads which rank waits for which, and why."""

from dataclasses import replace

import pytest

from grader import hanging_ranks, judging
from grader.course import UNITS
from grader.exercises import solved
from grader.sandbox import RankOutcome, rank_waits
from grader.sandbox.rank_waits import RECEIVE, SEND
from grader.verdict import DEADLOCK

ALL_REDUCE = next(part for part in UNITS["communication"] if part.file.endswith("all_reduce.py"))
ENDED = RankOutcome(None)


def waits(what, other=None, *expected):
    waiting = "" if what in (SEND, RECEIVE) else what
    return RankOutcome(DEADLOCK, waiting=waiting, waits_for=[what, other, list(expected)], line=7)


def said(*outcomes):
    return hanging_ranks.sentence(outcomes, lambda line: f"line {line}")


@pytest.mark.parametrize(
    ("outcomes", "waits_for", "why"),
    [
        ([waits(SEND, 1), waits(SEND, 0)], "rank 0 waits until rank 1 receives", "for its send before it starts to"),
        ([waits(RECEIVE, 1), waits(RECEIVE, 0)], "waits for a message from rank 1", "to receive before it sends"),
        ([waits(SEND, 1), waits(RECEIVE, 2), ENDED], "rank 2 has ended", "but rank 1 expects a message from rank 2"),
        ([waits(SEND, 1, 1), waits(SEND, 2, 2), waits(SEND, 0, 0)], "rank 2 waits", "rank 1 expects a message from"),
        ([waits(RECEIVE, 1), ENDED], "rank 1 has ended", "rank 1 never sends this message"),
        ([waits("broadcast", 0), waits(RECEIVE, 0)], "rank 0 waits in broadcast", "broadcast ends only after all"),
        ([waits("broadcast", 0), waits("broadcast", 1)], "with rank 1 as its root", "the same root"),
        ([waits("broadcast", 0), waits("all_reduce")], "rank 1 waits in all_reduce", "in the same order"),
        ([waits("broadcast", 0), ENDED], "rank 0 waits in broadcast, but rank 1 never got there", ""),
    ],
)
def test_a_deadlock_names_who_waits_for_whom_and_why(outcomes, waits_for, why):
    assert waits_for in said(*outcomes) and why in said(*outcomes)


def test_the_barrier_of_a_check_is_the_end_of_the_students_code():
    at_the_end = RankOutcome(DEADLOCK, waiting="barrier", waits_for=["barrier", None, []])
    assert "rank 1 never got there" in said(waits("broadcast", 0), at_the_end)


def test_the_collective_of_a_students_hook_is_named_before_that_of_backward():
    hook = replace(waits("all_reduce"), waiting="the all-reduce of the gradients (backward)")
    assert "rank 0 waits in all_reduce, but rank 1" in said(hook, ENDED)


def test_a_rank_notes_which_rank_it_waits_for(server):
    """On real ranks, of which one expects the message of a rank that sends it to another one."""
    code = (
        "handle = expect(chunks[rank - step - 1], 2 if rank == 1 else left)\n"
        "send(chunks[rank - step], right).wait()\nchunks[rank - step - 1].add_(handle.wait())"
    )
    text = solved(ALL_REDUCE.file, reduce_scatter=code)
    check = next(check for check in ALL_REDUCE.checks if check.gap == "reduce_scatter")
    [verdict, *_] = judging.judge("communication", (replace(ALL_REDUCE, checks=(check,)),), lambda file: text, server)
    assert verdict.status == DEADLOCK and "rank 1 expects a message from rank 2" in verdict.message


@pytest.mark.parametrize(
    "note", [b"", b"nonsense", b"[1, 2, 3]", b'["send", "x", []]', b'["<b>", 1, []]', b'["send", 1, 7]']
)
def test_a_note_that_a_student_has_forged_is_ignored(note):
    memory = rank_waits.shared_memory()
    memory[: len(note) + 1] = note + b"\0"
    assert rank_waits.read(memory) is None
