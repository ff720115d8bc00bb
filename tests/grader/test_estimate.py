"""How long grading will take: a clock that only counts, against placings done by hand and by the Placer itself."""

import random

import pytest

from grader.course import UNITS
from grader.instructors.grade import estimate, work
from grader.instructors.grade.estimate import EstimateError

UNIT = "single_gpu"


@pytest.fixture(autouse=True)
def nothing_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def jobs(students):
    return [((UNIT, number, gaps), ranks) for _ in range(students) for number, part in enumerate(UNITS[UNIT]) for ranks, gaps in work.by_ranks(part)]


@pytest.mark.parametrize(("pieces", "hosts", "seconds"), [
    ([], [2], 0),
    ([(3, 1)], [2], 3),
    ([(1, 1), (1, 1), (2, 1)], [2], 2),  # the longest first
    ([(1, 2), (1, 1), (1, 1)], [2], 2),  # two ranks take both engines
    ([(1, 4), (1, 4)], [2], 2),  # four ranks take what the host has
    ([(2, 2), (2, 2)], [1, 3], 4),  # both ranks on one host
    ([(2, 2), (2, 2)], [2, 2], 2),
])  # fmt: skip
def test_pieces_are_placed_as_by_hand(pieces, hosts, seconds):
    assert estimate.makespan(pieces, hosts) == seconds


def test_a_large_class_takes_as_long_as_if_all_of_it_were_placed(monkeypatch):
    chance = random.Random(1)
    student = [(chance.uniform(0.1, 3), ranks) for ranks in (1, 1, 1, 2, 4)]
    pieces = student * 4000
    quickly = estimate.makespan(pieces, [16, 16])
    monkeypatch.setattr(estimate, "LEAST", len(pieces))
    assert quickly == pytest.approx(estimate.makespan(pieces, [16, 16]), rel=0.02)
    assert quickly >= sum(took * ranks for took, ranks in pieces) / 32


def test_what_a_grading_took_is_what_the_next_one_is_expected_to_take():
    of_class = jobs(10)
    assert estimate.seconds(of_class, [2]) is None and "not known yet" in estimate.sentence(of_class, [2])
    took = {kind: [2.0] * 10 for kind, _ in of_class}
    whole = 5 + estimate.makespan([(2.0, ranks) for _, ranks in of_class], [2])
    estimate.remember(took, of_class, [2], whole)
    assert estimate.seconds(of_class, [2]) == pytest.approx(whole)
    assert estimate.seconds(jobs(20), [2]) == pytest.approx(5 + 2 * (whole - 5), rel=0.05)
    assert estimate.sentence(of_class, [2]) == f"Estimate: {estimate.readable(whole)} on 2 engines."


def test_more_engines_never_take_longer_and_a_queue_adds_its_wait():
    estimate.remember({kind: [1.0] for kind, _ in jobs(1)}, jobs(1), [2], 4.0)
    assert estimate.table([100, 1000], [2, 8, 512], 32)[0].split() == ["students", "2", "engines", "8", "engines", "512", "engines"]
    found = [estimate.seconds(jobs(500), [count]) for count in (1, 2, 8, 32)]
    assert found == sorted(found, reverse=True)
    known = estimate.remembered()
    assert estimate.seconds(jobs(5), [4], known | {"start": 600.0}) == pytest.approx(600 - known["start"] + estimate.seconds(jobs(5), [4]))


def test_what_cannot_be_estimated_is_said_in_one_sentence():
    with pytest.raises(EstimateError, match="has not graded anything yet"):
        estimate.table([100], [2], 32)
    with pytest.raises(EstimateError, match="--engines 2,x is no list"):
        estimate.numbers("--engines", "2,x")
    estimate.place().parent.mkdir(parents=True)
    estimate.place().write_text('{"pieces": 3}')
    assert estimate.remembered() == {"pieces": {}, "start": 0.0}
