"""A term: a class is graded by the rules of course.toml, and they change without a new grading."""

import csv
import shutil
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from grader.course import UNITS
from grader.instructors.collect import collect
from grader.instructors.grade import grading
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import outdated, write_reports
from grader.instructors.rules import RulesError
from grader.verdict import NOT_ATTEMPTED, PASSED, Verdict
from handson.cluster import site as sites

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
    monkeypatch.setattr(grading.digest, "of_unit", lambda unit, site=None: "1")

    def collected(*words):
        for one in collect(*words):
            if one.refused:
                yield one
                continue
            yield replace(
                one, handed_in=(DUE + timedelta(hours=float((one.path / FILE).read_text().split()[0]))).isoformat()
            )

    def graded(book, missing, versions, *rest):
        for submission, unit in () if grade.interrupted else missing:
            words = (submission.path / FILE).read_text().split()
            worth = words[2] if unit == "start" else words[1]
            status = NOT_ATTEMPTED if worth == "untouched" else PASSED
            points = 0.0 if worth == "untouched" else float(worth) * grade.worth
            verdict = Verdict(unit, "", "request", "right", status, points, 10.0)
            book.store(submission, unit, [verdict], versions[unit], "sandbox")
            done.append((submission.student, submission.attempt, unit))

    def grade(text, **options):
        (tmp_path / "course.toml").write_text(text)
        done.clear()
        grading.grade(tmp_path / "handed_in", tmp_path / "out", units=[UNIT, "start"], say=said.append, **options)
        return sorted(done)

    done, said = [], []
    monkeypatch.setattr(grading, "collect", lambda *words: list(collected(*words)))
    monkeypatch.setattr(grading, "_grade", graded)
    grade.said, grade.done, grade.interrupted, grade.worth = said, done, False, 1.0
    return grade


def hand_in(folder, student, attempt, hours, points, start=0):
    """An archive as Canvas names it: `hours` after the deadline, for `points` of 10 in UNIT, and those of start."""
    (folder / "handed_in").mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"handed_in/{student}_{attempt}_work.zip", "w") as archive:
        archive.writestr(FILE, f"{hours} {points} {start}")


def of_moodle(folder, column):
    return {row["Full name"]: row[column] for row in csv.DictReader((folder / "out/moodle.csv").open())}


def grades(folder):
    return of_moodle(folder, "Grade")


def comments_of(folder):
    return of_moodle(folder, "Feedback comments")


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
    grading.again(tmp_path / "out", "max_2", say=term.said.append)
    assert term.done == [("max_2", 1, UNIT)] and grades(tmp_path) == {"ann": "90", "bob": "90", "max": "80"}, (
        "a result in another unit would leave all unfinished"
    )
    with pytest.raises(grading.GradeError, match="nothing to grade in start: course.toml gives no points for it"):
        grading.again(tmp_path / "out", "max_2", ["start"])
    term.done.clear()
    grading.again(tmp_path / "out", "max_2", ["multi_gpu"], say=term.said.append)
    assert term.done == [("max_2", 1, "multi_gpu")], "whoever names a unit has it"


def test_an_attempt_that_may_count_and_was_left_ungraded_in_an_earlier_download_is_graded_or_named(term, tmp_path):
    hand_in(tmp_path, "ann_1", 10, -1, 9)
    term.interrupted = True
    term(TERM)
    term.interrupted = False
    (tmp_path / "handed_in/ann_1_10_work.zip").rename(tmp_path / "first.zip")
    hand_in(tmp_path, "ann_1", 11, 30, 10)
    kept = tmp_path / "out/submissions/ann_1"
    kept.rename(tmp_path / "aside")
    term.said.clear()
    assert term(TERM) == [("ann_1", 2, UNIT)] and grades(tmp_path)["ann"] == ""
    [sentence] = [line for line in term.said if line.startswith("Not graded by these checks")]
    assert f"any more: ann_1, attempt 1 ({UNIT}). They may count: grade the earlier download" in sentence
    shutil.copytree(tmp_path / "aside", kept, dirs_exist_ok=True)
    term.said.clear()
    assert term(TERM) == [("ann_1", 1, UNIT)] and grades(tmp_path)["ann"] == "90", "its files are kept"
    assert not [line for line in term.said if line.startswith("Not graded by")]


def test_a_corrected_check_reaches_earlier_attempts_and_students_who_are_gone(term, tmp_path, monkeypatch):
    hand_in(tmp_path, "ann_1", 10, -1, 9)
    hand_in(tmp_path, "max_2", 20, -1, 8)
    term(TERM)
    for path in (tmp_path / "handed_in").iterdir():
        path.unlink()
    hand_in(tmp_path, "ann_1", 11, 30, 5)
    term(TERM)
    monkeypatch.setattr(grading.digest, "of_unit", lambda unit, site=None: "2")
    term.worth = 1.1
    term.said.clear()
    with Gradebook(tmp_path / "out", writing=False) as book:
        write_reports(book, tmp_path / "out")
        [sentence] = [outdated(book)]
    assert sentence.startswith("By an older version of the checks: 3 results, of ann_1, bob, max_2; ")
    assert "Results by an older version of the checks: single_gpu." in (tmp_path / "out/report.html").read_text()
    term.done.clear()
    grading.again(tmp_path / "out", say=term.said.append)
    assert sorted(term.done) == [("ann_1", 1, UNIT), ("ann_1", 2, UNIT), ("max_2", 1, UNIT)]
    at = term.said.index("Changed grades:")
    assert term.said[at + 1 : at + 4] == ["    ann_1: 90 -> 99", "    bob: 90 -> 99", "    max_2: 80 -> 88"]
    assert term.said[-1] == "3 graded, mean 95 %."
    term.done.clear()
    grading.again(tmp_path / "out", say=term.said.append)
    assert term.done == []


def test_a_student_of_any_printed_name_is_graded_again_with_all_attempts_that_may_count(term, tmp_path):
    hand_in(tmp_path, "ann_1", 10, -1, 9)
    hand_in(tmp_path, "ann_1", 11, 30, 5)
    hand_in(tmp_path, "max_2", 20, -1, 8)
    term(TERM)
    for name in ("max", "max_2", "MAX_2", "ann", "alpha"):
        term.done.clear()
        grading.again(tmp_path / "out", name, say=term.said.append)
        whose = "max_2" if "max" in name.lower() else "ann_1"
        assert {student for student, *_ in term.done} == {whose} and len(term.done) == (1 if whose == "max_2" else 2)


def test_files_as_they_were_given_out_are_no_attempt(term, tmp_path):
    """Neither a student's own later upload nor a partner's replaces what is right."""
    hand_in(tmp_path, "ann_1", 10, -3, 9)
    hand_in(tmp_path, "ann_1", 11, -2, "untouched")
    hand_in(tmp_path, "bob_5", 12, -1, "untouched")
    term.said.clear()
    term(TERM)
    assert grades(tmp_path)["ann"] == "90"
    assert not [line for line in term.said if "in place of" in line]
    hand_in(tmp_path, "bob_5", 13, -0.5, 4)
    term(TERM)
    assert grades(tmp_path)["ann"] == "40", "by the rule, the group's last work counts"
    assert "ann_1: In single_gpu, the work of bob counts in place of ann's." in term.said


def test_what_is_not_due_and_untouched_is_no_part_of_the_grade(term, tmp_path, monkeypatch):
    monkeypatch.setattr("grader.instructors.scores.clock", lambda: DUE - timedelta(days=3))
    course = TERM.replace("scale", "pass = 50\nscale").replace("points = 0", "points = 10\ndue = 2026-11-10")
    hand_in(tmp_path, "ann_1", 10, -300, "untouched", start=9)
    hand_in(tmp_path, "max_2", 20, -300, 5, start=9)
    term(course)
    comments = comments_of(tmp_path)
    assert grades(tmp_path) == {"ann": "90", "bob": "90", "max": "70"}
    assert "9 of 10 points so far give the grade 90" in comments["ann"] and "passed" not in comments["ann"]
    assert "Not due yet, and not part of the grade: single_gpu." in comments["ann"]
    monkeypatch.setattr("grader.instructors.scores.clock", lambda: DUE + timedelta(days=3))
    term(course)
    assert grades(tmp_path) == {"ann": "45", "bob": "45", "max": "70"}
    assert "not passed (50 are needed)" in comments_of(tmp_path)["ann"]


def test_a_unit_alone_is_a_grade_so_far_while_others_are_to_come(term, tmp_path, monkeypatch):
    monkeypatch.setattr("grader.instructors.scores.clock", lambda: DUE + timedelta(days=3))
    hand_in(tmp_path, "max_2", 20, -300, 5)
    term(TERM.replace("scale", "pass = 50\nscale") + "[units.multi_gpu]\ndue = 2027-01-01\n")
    assert "so far" in comments_of(tmp_path)["max"] and "passed" not in comments_of(tmp_path)["max"]


def test_the_site_of_a_unit_stays_that_of_its_first_results(term, tmp_path, monkeypatch):
    monkeypatch.setattr(grading.digest, "of_unit", lambda unit, site=None: f"1@{site or sites.chosen()}")
    hand_in(tmp_path, "max_2", 20, -1, 5)
    assert term(TERM) == [("max_2", 1, UNIT)]
    monkeypatch.setattr(sites, "chosen", lambda: "reedbush")
    term.said.clear()
    assert term(TERM) == []
    sentence = "single_gpu is checked for the site local, as 1 result so far, and not for reedbush: a line `site` in"
    assert [line for line in term.said if line.startswith(sentence)]
    assert term(TERM.replace(f"[units.{UNIT}]", f"[units.{UNIT}]\nsite = 'reedbush'")) == [("max_2", 1, UNIT)]


def test_grade_ends_with_a_summary(term, tmp_path):
    hand_in(tmp_path, "ann_1", 10, -1, 9)
    hand_in(tmp_path, "max_2", 20, -1, 5)
    (tmp_path / "handed_in/zoe_3_30_work.zip").write_bytes(b"no zip")
    term(TERM)
    assert term.said[-2] == "3 graded, 1 refused (zoe_3), mean 77 %."
