"""Adjusting says what it changes, and makes no folder."""

import pytest
from classes import handed_in, said, store

from grader.course import UNITS
from grader.instructors import worksheet
from grader.instructors.adjustments import WHOLE, add, adjust, adjust_all, adjustments, confirm
from grader.instructors.gradebook import Gradebook, GradebookError


def lines(folder, gap, points):
    told = []
    adjust(folder, "jane", "multi_gpu", gap, points, "why", "who", told.append)
    return told


def test_the_old_and_the_new_total_are_told_and_what_counts_of_unit_and_gap(tmp_path):
    with Gradebook(tmp_path) as book:
        store(book, handed_in(), [said("step", 0.5), said("other", 1.0)])
    assert lines(tmp_path, "step", 1.5) == ["jane: 1.5 points -> 2.5 points."]
    overrides = "What is set for multi_gpu as a whole, 4 points, replaces the points that are set for its gaps (step)."
    assert lines(tmp_path, "", 4.0) == ["jane: 2.5 points -> 4 points.", overrides]
    assert lines(tmp_path, "step", 2.0) == ["jane: 4 points -> 4 points.", overrides]
    assert lines(tmp_path, "", None) == ["jane: 4 points -> 3 points."]


def test_a_name_without_its_number_is_the_students_or_is_answered_with_those_it_could_mean(tmp_path):
    with Gradebook(tmp_path) as book:
        for name, number in (("Jane Doe", "1"), ("Max Roe", "2"), ("Max Roe", "3")):
            store(book, handed_in(name, number), [said("step", 1.0)])
    told = []
    adjust(tmp_path, "jane doe", "multi_gpu", "step", 2.0, "why", "who", told.append)
    assert told == ["Jane Doe_1: 1 point -> 2 points."]
    with pytest.raises(
        GradebookError, match="there is no student 'Max Roe' in .*: did you mean 'Max Roe_2' or 'Max Roe_3'?"
    ):
        adjust(tmp_path, "Max Roe", "multi_gpu", "step", 2.0, "why", "who", told.append)
    with pytest.raises(GradebookError, match="did you mean 'Jane Doe_1'?"):
        adjust(tmp_path, "Jane Do", "multi_gpu", "step", 2.0, "why", "who", told.append)


def test_points_of_an_earlier_submission_count_once_they_are_confirmed(tmp_path):
    with Gradebook(tmp_path) as book:
        store(book, handed_in(), [said("step", 0.5)])
    lines(tmp_path, "step", 1.0)
    with Gradebook(tmp_path) as book:
        store(book, handed_in(digest="d2", attempt=2), [said("step", 2.0)])
    [listed] = adjustments(tmp_path)
    assert listed.startswith("jane: multi_gpu, step set to 1, why (who, ")
    assert "made for an earlier submission, does not count (2 points without it): confirm" in listed
    assert (tmp_path / "report.html").exists()
    told = []
    confirm(tmp_path, "jane", "multi_gpu", "step", "who", told.append)
    assert told == ["jane: 2 points -> 1 point."]
    assert "earlier" not in adjustments(tmp_path)[0]
    with pytest.raises(GradebookError, match="jane has no adjustment of multi_gpu, step from an earlier submission"):
        confirm(tmp_path, "jane", "multi_gpu", "step", "who", told.append)


def test_the_whole_grade_is_set_in_one_command_and_counts_in_place_of_all(tmp_path):
    with Gradebook(tmp_path) as book:
        store(book, handed_in(), [said("step", None), said("step", 2.0, unit="multi_node")])
    told = []
    adjust(tmp_path, "jane", WHOLE, "", 3.0, "shown in class", "who", told.append)
    assert told == ["jane: 2 points (not finished) -> 3 points."]
    assert ',adjusted,1,0,adjusted,"shown in class (who, ' in (tmp_path / "grades.csv").read_text()
    assert "shown in class" in (tmp_path / "feedback/jane.html").read_text()
    assert "the whole grade" in (tmp_path / "report.html").read_text()
    told.clear()
    adjust(tmp_path, "jane", "multi_node", "", 0.0, "why", "who", told.append)
    assert told == [
        "jane: 3 points -> 3 points.",
        "What is set for the whole grade, 3 points, replaces the points that are set for multi_node.",
    ]


def test_a_folder_without_a_gradebook_is_refused_and_left_alone(tmp_path):
    with pytest.raises(GradebookError, match="has no gradebook.sqlite"):
        lines(tmp_path / "nowhere", "", 1.0)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course whose tasks have other points than their checks."""
    monkeypatch.setattr("grader.instructors.rules.FILE", tmp_path / "course.toml")
    (tmp_path / "course.toml").write_text(
        "scale = 100\nbonus = 2\n[units.multi_gpu]\npoints = 20\n[groups]\nalpha = ['jane', 'max']\n"
    )
    with Gradebook(tmp_path) as book:
        store(book, handed_in(), [said("step", 0.5), said("other", 1.0)])
    return tmp_path


def points(folder, student):
    [row] = [line for line in (folder / "moodle.csv").read_text().splitlines() if f",{student}," in line]
    return float(row.split(",")[2])


def test_points_by_hand_are_those_of_the_course_also_after_it_has_changed(course):
    told = []
    adjust(course, "jane", "multi_gpu", "step", 10, "why", "who", told.append)
    assert told == ["jane: 37.5 -> 75, on the scale to 100."]
    assert (points(course, "jane"), points(course, "max")) == (75, 37.5)
    with pytest.raises(
        GradebookError, match="10.1 points can't be given: multi_gpu, step has from 0 to 10 in course.toml"
    ):
        adjust(course, "jane", "multi_gpu", "step", 10.1, "why", "who", told.append)
    (course / "course.toml").write_text("")
    assert adjustments(course)[0].startswith("jane: multi_gpu, step set to 2, why")


def test_bonus_points_are_given_as_far_as_the_course_has_them(course):
    with pytest.raises(GradebookError, match="2.5 points can't be given: bonus has from 0 to 2"):
        adjust(course, "jane", "bonus", "", 2.5, "why", "who")
    adjust(course, "jane", "bonus", "", 2, "why", "who", lambda line: None)
    assert points(course, "jane") == 47.5
    adjust(course, "jane", "bonus", "", None, "why", "who", lambda line: None)
    assert points(course, "jane") == 37.5
    (course / "course.toml").unlink()
    with pytest.raises(GradebookError, match="bonus needs a line such as bonus = 5 in course.toml"):
        adjust(course, "jane", "bonus", "", 1, "why", "who")


RAR = "work.rar is a RAR archive, which cannot be read: pack the folder as .zip."


@pytest.fixture
def unread(tmp_path, monkeypatch):
    """A class of which nothing can be read: a group, in Moodle's folder with the group's number, and a student."""
    monkeypatch.setattr("grader.instructors.rules.FILE", tmp_path / "course.toml")
    units = "".join(f"[units.{unit}]\npoints = {10 if unit in ('start', 'multi_gpu') else 0}\n" for unit in UNITS)
    (tmp_path / "course.toml").write_text(
        f"scale = 100\nbonus = 2\n{units}[groups]\n'Team Rhein' = ['Gita Kumar_7', 'Hans Meier_8']\n"
    )
    with Gradebook(tmp_path) as book:
        book.record(
            [handed_in("Team Rhein", "777", digest="", refused=RAR), handed_in("Eva", "5", digest="", refused=RAR)]
        )
    return tmp_path


@pytest.mark.parametrize("name", ["Team Rhein", "team rhein", "Team Rhein_777", "Gita Kumar"])
def test_a_group_is_found_by_its_name_and_number_and_its_members_by_theirs(unread, name):
    told = []
    adjust(unread, name, "bonus", "", 2, "helped", "who", told.append)
    adjust(unread, name, WHOLE, "", 10, "shown", "who", told.append)
    both = ["Gita Kumar_7"] if name == "Gita Kumar" else ["Gita Kumar_7", "Hans Meier_8"]
    changes = "0 (not read) -> 10 (not read), on the scale to 100", "10 (not read) -> 60, on the scale to 100"
    assert told == [f"{one}: {change}." for change in changes for one in both]
    assert [line.split(",")[0] for line in adjustments(unread)] == [
        f"{one}: {what} set to {n}" for one in both for what, n in (("the whole grade", 10), ("bonus", 2))
    ]


def test_points_for_everybody_are_one_change(tmp_path):
    with Gradebook(tmp_path) as book:
        for student in ("ann", "bob"):
            store(book, handed_in(student, digest=student), [said("step", 0.5)])
        store(book, handed_in("zoe", digest="z"), [said("device", 0.5)])
    lines = []
    adjust_all(tmp_path, None, "multi_gpu", "step", 2.0, "a bad question", "J. Roe", lines.append)
    assert lines[:2] == ["multi_gpu, step: set for 2 students.", "Changed grades:"] and len(lines) == 4
    with pytest.raises(GradebookError, match="2.5 points can't be given"):
        adjust_all(tmp_path, None, "multi_gpu", "step", 2.5, "x", "J. Roe", lines.append)
    with pytest.raises(GradebookError, match="nobody has a result in start"):
        adjust_all(tmp_path, None, "start", "", 1.0, "x", "J. Roe", lines.append)


def test_somebody_who_handed_in_nothing_gets_points(tmp_path):
    with Gradebook(tmp_path) as book:
        store(book, handed_in("ann"), [said("step", 0.5)])
    (tmp_path / worksheet.NAME).write_text(
        "Identifier,Full name,Grade,Last modified (grade),Status\nParticipant 7,Nora Nix,,-,No submission\n"
    )
    assert add(tmp_path, "nora nix", str) == "Nora Nix_7"
    with pytest.raises(GradebookError, match="is in the gradebook already"):
        add(tmp_path, "Nora Nix", str)
    adjust(tmp_path, "Nora Nix", "all", "", 1.0, "an oral exam", "J. Roe", str)
    assert "Participant 7,Nora Nix,1,-" in (tmp_path / "moodle.csv").read_text()
