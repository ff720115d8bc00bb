"""Scores: the better track counts, adjustments replace what checks gave, and what is ungraded is never a 0."""

import pytest
from classes import handed_in, not_done, said, store

from grader.instructors.scores import scores


def only(book, order=()):
    [score] = scores(book, order)
    return score


def test_points_of_gaps_and_units_add_up(book):
    store(
        book,
        handed_in(),
        [said("a", 1.5), said("a", 0.5, check="2"), said("b", 2.0), said("c", 1.0, unit="start", track="")],
    )
    score = only(book)
    assert [(gap.name, gap.points, gap.max_points) for gap in score.units[0].gaps] == [("a", 2.0, 4.0), ("b", 2.0, 2.0)]
    assert [(unit.name, unit.points, unit.max_points) for unit in score.units] == [
        ("multi_gpu", 4.0, 6.0),
        ("start", 1.0, 2.0),
    ]
    assert (score.points, score.max_points, score.complete) == (5.0, 8.0, True)


@pytest.mark.parametrize(
    "pytorch, chainer, track", [(2.0, 0.0, "pytorch"), (0.0, 2.0, "chainer"), (1.0, 1.0, "pytorch")]
)
def test_of_two_tracks_the_better_one_counts_and_shared_parts_always(book, pytorch, chainer, track):
    store(
        book, handed_in(), [said(points=pytorch), said(points=chainer, track="chainer"), said("script", 1.0, track="")]
    )
    [unit] = only(book).units
    assert (unit.track, unit.points, unit.max_points) == (track, max(pytorch, chainer) + 1, 4.0)
    assert [gap.verdicts[0].track for gap in unit.others] == [{"pytorch": "chainer", "chainer": "pytorch"}[track]]


def test_an_adjustment_of_a_gap_replaces_its_points(book):
    store(book, handed_in(), [said("a", 1.0), said("a", 0.0, check="2"), said("b", 2.0)])
    book.adjust("jane", "multi_gpu", "a", 3.5, "why", "who")
    [unit] = only(book).units
    assert (unit.gaps[0].points, unit.gaps[0].checked, unit.points, unit.max_points) == (3.5, 1.0, 5.5, 6.0)


def test_an_adjustment_of_a_unit_replaces_all_of_its_points(book):
    store(book, handed_in(), [said("a", 1.0), said("b", 2.0)])
    book.adjust("jane", "multi_gpu", "a", 2.0, "why", "who")
    book.adjust("jane", "multi_gpu", "", 0.0, "copied", "who")
    [unit] = only(book).units
    assert (unit.points, unit.checked, unit.complete) == (0.0, 4.0, True)


def test_an_adjustment_can_make_another_track_the_better_one(book):
    store(book, handed_in(), [said("a", 1.0), said("b", 0.0, track="chainer")])
    book.adjust("jane", "multi_gpu", "b", 2.0, "why", "who")
    [unit] = only(book).units
    assert (unit.track, unit.points) == ("chainer", 2.0)


def test_what_is_ungraded_makes_the_score_incomplete_until_it_is_adjusted(book):
    store(book, handed_in(), [said("a", None), said("b", 2.0)])
    score = only(book)
    assert not score.complete
    assert not score.units[0].complete
    assert not score.units[0].gaps[0].complete
    assert score.units[0].gaps[1].complete
    book.adjust("jane", "multi_gpu", "a", 1.0, "checked by eye", "who")
    assert only(book).complete and only(book).points == 3.0


def test_a_unit_that_others_have_is_ungraded_not_zero(book):
    store(book, handed_in("max"), [said(), said(unit="start", max_points=5.0)])
    store(book, handed_in("jane"), [said()])
    jane = scores(book)[0]
    assert [(unit.name, unit.graded, unit.complete, unit.max_points) for unit in jane.units] == [
        ("multi_gpu", True, True, 2.0),
        ("start", False, False, 5.0),
    ]
    assert not jane.complete


def test_a_refused_submission_has_no_score(book):
    store(book, handed_in("max"), [said()])
    book.record([handed_in(digest="", refused="x.zip holds a link.")])
    assert not scores(book)[0].complete


def test_units_come_in_order(book):
    units = ["single_gpu", "other", "start", "another"]
    store(book, handed_in(), [said(unit=unit) for unit in units])
    assert [unit.name for unit in only(book, ("start", "single_gpu", "multi_gpu")).units] == [
        "start",
        "single_gpu",
        "another",
        "other",
    ]


def test_nothing_done_is_graded_with_nothing(book):
    store(book, handed_in(), [not_done("a"), not_done("b")])
    score = only(book)
    assert (score.points, score.max_points, score.complete) == (0, 4.0, True)
