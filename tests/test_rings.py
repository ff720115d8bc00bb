"""A ring all-reduce by hand: the picture's chunks and the step that goes wrong, against all schedules that there are."""

import itertools
import random

import numpy
import pytest

from handson import rings

STEPS = list(itertools.product(range(3), repeat=3))
RIGHT = [[0, 1, 2], [2, 0, 1], [1, 2, 0], [0, 1, 2]]


def everything():
    """How often each rank's numbers are in each chunk after all 27^4 schedules: (schedules, rank, chunk, whose)."""
    held = numpy.broadcast_to(numpy.eye(3, dtype="int16")[:, None], (1, 3, 3, 3))
    for step in range(4):
        before = held
        held = numpy.repeat(before[:, None], len(STEPS), axis=1).copy()
        for number, chunks in enumerate(STEPS):
            for rank, chunk in enumerate(chunks):
                right = (rank + 1) % 3
                own = before[:, right, chunk] if step < 2 else 0
                held[:, number, right, chunk] = own + before[:, rank, chunk]
        held = held.reshape(-1, 3, 3, 3)
    return held


def schedule(number):
    return [STEPS[place] for place in numpy.unravel_index(number, (len(STEPS),) * 4)]


def test_the_first_step_that_goes_wrong_is_the_one_after_which_no_schedule_is_right():
    right = [schedule(number) for number in numpy.flatnonzero((everything() == 1).all(axis=(1, 2, 3)))]
    assert list(map(tuple, RIGHT)) in right
    chance = random.Random(0)
    for one in right:
        assert rings.problem(one) is None
        for step in range(4):
            good = {tuple(other[step]) for other in right if other[:step] == one[:step]}
            for chunks in STEPS:
                rest = [chance.choice(STEPS) for _ in range(3 - step)]
                found = rings.problem([*one[:step], chunks, *rest])
                if chunks in good:
                    assert found is None or found[0] > step + 1
                else:
                    assert found[0] == step + 1


def test_the_chunks_hold_what_was_added_up():
    held = everything()
    for number in random.Random(0).sample(range(len(held)), 300):
        found = rings.moments(schedule(number))[-1]
        for rank, chunk in itertools.product(range(3), range(3)):
            assert [found[rank][chunk].count(whose) for whose in range(3)] == held[number, rank, chunk].tolist()


@pytest.mark.parametrize(
    "sends, words",
    [
        ([[0, 1, 2], [], [], []], "Step 2 is still to be written"),
        ([[], [], [], []], "Step 1 is still to be written"),
        (RIGHT, "all ranks have the sum"),
        ([[0, 1, 2], [0, 0, 1], *RIGHT[2:]], "adds the numbers of rank 0 a second time"),
        ([[0, 1, 2], [1, 0, 1], *RIGHT[2:]], "only its own numbers"),
        ([*RIGHT[:2], [0, 2, 0], []], "before it is complete"),
        ([*RIGHT[:3], [1, 0, 1]], "already has the sum"),
        ([[0, 0, 1], [], [], []], "no rank sends chunk 2"),
    ],
)
def test_a_sentence_below_the_picture_says_how_far_the_ring_is_right(sends, words):
    drawing, description = rings.draw(sends)
    [shown] = [text for text in drawing.axes[0].texts if words in " ".join(text.get_text().split())]
    assert words in description


@pytest.mark.parametrize(
    "sends",
    [None, 3, [], [[0, 1, 2]] * 3, [0, 1, 2, 0], [[0, 1]] * 4, [[0, 1, 3]] * 4, [[0, 1, "2"]] * 4, [[True] * 3] * 4],
)
def test_what_is_not_a_schedule_gets_one_sentence(sends):
    with pytest.raises(rings.RingError):
        rings.picture(sends)
