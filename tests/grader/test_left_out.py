"""A unit whose packages are not there is graded nowhere: `grade` says so if it is handed in, and counts."""

from types import SimpleNamespace

import pytest

from grader.course import UNITS
from grader.instructors.grade import grading
from grader.instructors.rules import Rules, UnitRules

UNIT = "frameworks"


@pytest.fixture
def left_out(tmp_path, monkeypatch):
    """A function: what is left out, where this unit is not ready and these files are handed in."""
    monkeypatch.setattr(grading, "ready", lambda: UNITS.keys() - {UNIT})

    def of(*files, refused=None, course=Rules()):
        for file in files:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
        return grading._left_out([SimpleNamespace(path=tmp_path, refused=refused)], course)

    return of


def test_a_unit_that_is_handed_in_is_named(left_out):
    assert left_out(UNITS[UNIT][0].file, UNITS["start"][0].file) == [UNIT]


def test_nothing_is_said_of_what_is_not_handed_in(left_out):
    assert left_out(UNITS["start"][0].file) == left_out(UNITS[UNIT][0].file, refused="no archive") == []


def test_nothing_is_said_of_a_unit_that_does_not_count(left_out):
    assert left_out(UNITS[UNIT][0].file, course=Rules(units={UNIT: UnitRules(points=0)})) == []
