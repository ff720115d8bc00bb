"""A term: a class is graded by the rules of course.toml, and they change without a new grading."""

import csv
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from grader.course import UNITS
from grader.instructors.collect import collect
from grader.instructors.grade import grading
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import write_reports
from grader.instructors.rules import RulesError
from grader.verdict import PASSED, Verdict

UNIT = "single_gpu"
FILE = next(part.file for part in UNITS[UNIT] if part.file.endswith(".sh"))
DUE = datetime(2026, 11, 20, 17, tzinfo=UTC)
TERM = (
    f'zone = "Europe/Berlin"\nscale = 100\n[late]\nper_day = 10\n[units.{UNIT}]\ndue ='
    ' 2026-11-20T18:00:00\n[units.start]\npoints = 0\n[groups]\nalpha = ["ann_1", "bob"]\n'
)


@pytest.fixture
def term(tmp_path, monkeypatch):
    """A function that grades a class by a course.toml; each attempt gets the points that its file has in it. Returns
    what was graded."""
    monkeypatch.setattr("grader.instructors.rules.FILE", tmp_path / "course.toml")
    monkeypatch.setattr(grading.sandbox, "strong", lambda: True)
    monkeypatch.setattr(grading.digest, "of_unit", lambda unit: "1")

    def collected(*words):
        for one in collect(*words):
            yield replace(
                one, handed_in=(DUE + timedelta(hours=float((one.path / FILE).read_text().split()[0]))).isoformat()
            )

    def graded(book, missing, versions, *rest):
        for submission, unit in () if grade.interrupted else missing:
            points = float((submission.path / FILE).read_text().split()[1])
            book.store(
                submission,
                unit,
                [Verdict(unit, "", "request", "right", PASSED, points, 10.0)],
                versions[unit],
                "sandbox",
            )
            done.append((submission.student, submission.attempt, unit))

    def grade(text, **options):
        (tmp_path / "course.toml").write_text(text)
        done.clear()
        grading.grade(tmp_path / "handed_in", tmp_path / "out", units=[UNIT, "start"], say=said.append, **options)
        return sorted(done)

    done, said = [], []
    monkeypatch.setattr(grading, "collect", lambda *words: list(collected(*words)))
    monkeypatch.setattr(grading, "_grade", graded)
    grade.said, grade.done, grade.interrupted = said, done, False
    return grade


def hand_in(folder, student, attempt, hours, points):
    """An archive as Canvas names it: `hours` after the deadline, for `points` of 10."""
    (folder / "handed_in").mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"handed_in/{student}_{attempt}_work.zip", "w") as archive:
        archive.writestr(FILE, f"{hours} {points}")


def grades(folder):
    return {
        row["Full name"]: row["Grade"] for row in csv.DictReader((folder / "out/moodle.csv").read_text().splitlines())
    }


def test_the_attempts_that_may_count_are_graded_once_and_rules_change_without_a_new_grading(term, tmp_path):
    for attempt, (hours, points) in enumerate([(-50, 9), (-1, 6), (30, 10)], start=10):
        hand_in(tmp_path, "ann_1", attempt, hours, points)
    hand_in(tmp_path, "max_2", 20, 1, 10)
    last_in_time_and_late = [("ann_1", 2, UNIT), ("ann_1", 3, UNIT), ("max_2", 1, UNIT)]
    assert term(TERM) == last_in_time_and_late, "start has no points, and the first attempt in time was replaced"
    assert grades(tmp_path) == {"ann": "80", "bob": "80", "max": "90"}
    assert term(TERM) == []
    assert term(TERM.replace("per_day = 10", "per_day = 50")) == []
    assert grades(tmp_path) == {"ann": "60", "bob": "60", "max": "50"}
    with Gradebook(tmp_path / "out", writing=False) as book:
        (tmp_path / "course.toml").write_text(TERM + "[students.max.extensions]\nsingle_gpu = 2026-11-21\n")
        write_reports(book, tmp_path / "out")
    assert grades(tmp_path)["max"] == "100"
    assert term('counts = "best"\n' + TERM) == [("ann_1", 1, UNIT)], "only what has not been graded yet"
    assert grades(tmp_path) == {"ann": "90", "bob": "90", "max": "90"}
    assert "Attempt 2 counts" not in (tmp_path / "out/feedback/ann_1.html").read_text()
    assert term("") == [("ann_1", 3, "start"), ("max_2", 1, "start")], (
        "without rules the last attempt counts, in all units"
    )


def test_names_that_nobody_has_are_reported_and_a_wrong_file_loses_nothing(term, tmp_path):
    hand_in(tmp_path, "ann_1", 1, -1, 5)
    term("[students.anm]\nlate_days = 1\n")
    assert "course.toml names 'anm', who has handed in nothing; did you mean 'ann'?" in term.said
    before = (tmp_path / "out/grades.csv").read_bytes()
    with pytest.raises(RulesError, match="did you mean 'late_days'"):
        term("[students.ann]\nlate_day = 1\n")
    with pytest.raises(RulesError, match="two names for one student"):
        term("[students.ann]\n[students.ann_1]\n")
    assert (tmp_path / "out/grades.csv").read_bytes() == before


def test_who_is_graded_again_is_graded_in_the_units_of_the_class_alone(term, tmp_path):
    hand_in(tmp_path, "ann_1", 10, -1, 9)
    hand_in(tmp_path, "max_2", 20, -1, 8)
    term(TERM)
    term.done.clear()
    grading.again("max_2", tmp_path / "out", say=term.said.append)
    assert term.done == [("max_2", 1, UNIT)] and grades(tmp_path) == {"ann": "90", "bob": "90", "max": "80"}, (
        "a result in another unit would leave all unfinished"
    )
    with pytest.raises(grading.GradeError, match="nothing to grade in start: course.toml gives no points for it"):
        grading.again("max_2", tmp_path / "out", ["start"])
    term.done.clear()
    grading.again("max_2", tmp_path / "out", ["multi_gpu"], say=term.said.append)
    assert term.done == [("max_2", 1, "multi_gpu")], "whoever names a unit has it"


def test_an_attempt_that_may_count_and_was_left_ungraded_in_an_earlier_download_is_named(term, tmp_path):
    hand_in(tmp_path, "ann_1", 10, -1, 9)
    term.interrupted = True
    term(TERM)
    term.interrupted = False
    (tmp_path / "handed_in/ann_1_10_work.zip").rename(tmp_path / "first.zip")
    hand_in(tmp_path, "ann_1", 11, 30, 10)
    term.said.clear()
    assert term(TERM) == [("ann_1", 1, UNIT)] and grades(tmp_path)["ann"] == "", (
        "the second one is the first in this download"
    )
    [sentence] = [line for line in term.said if line.startswith("Not graded yet")]
    assert f"handed_in: ann_1, attempt 1 ({UNIT}). They may count: grade the earlier download that has them" in sentence
    assert sentence.endswith("then this one again.")
    (tmp_path / "first.zip").rename(tmp_path / "handed_in/ann_1_10_work.zip")
    term.said.clear()
    assert term(TERM) == [("ann_1", 1, UNIT)] and grades(tmp_path)["ann"] == "90"
    assert not [line for line in term.said if line.startswith("Not graded yet")]
