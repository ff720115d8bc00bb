"""Feedback pages go back: into zips in which Moodle and Canvas find each student, by the rules in their source."""

import io
import zipfile

import pytest
from classes import handed_in, said, store

from grader.instructors import worksheet
from grader.instructors.export import ExportError, export
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import write_reports


def graded(folder, *submissions):
    with Gradebook(folder) as book:
        for one in submissions:
            store(book, one, [said("a", message=f"a message for {one.name}")])
        write_reports(book, folder)
    return folder


def taken_by_moodle(path, participants):
    """{number: {name of a feedback file: its text}}: what Moodle finds in a zip (is_valid_filename_for_import, 3.1 to
    5.1)."""
    found = {}
    with zipfile.ZipFile(path) as pack:
        for name in pack.namelist():
            parts = name.split("/")
            if parts[-1].startswith((".", "~")):
                continue
            for place, part in enumerate(parts):
                info = part.split("_", 4)
                if len(info) == 5 and info[1] in participants and info[2:4] == ["assignfeedback", "file"]:
                    found.setdefault(info[1], {})["/".join([info[4], *parts[place + 1 :]])] = pack.read(name).decode()
                    break
    return found


def taken_by_canvas(path, users, attachments):
    """{user: a file's bytes}: what Canvas finds in a zip (infer_comment_context_from_filename)."""
    found = {}
    with zipfile.ZipFile(path) as pack:
        for name in pack.namelist():
            numbers = [part for part in name.split("_") if part.isdigit()][:2]
            if len(numbers) == 2 and numbers[0] in users and numbers[1] in attachments:
                found[numbers[0]] = pack.read(name)
    return found


def test_moodle_finds_each_students_feedback(tmp_path):
    graded(tmp_path, handed_in("Jane_van Doe", "11"), handed_in(".Max/Roe", "12"), handed_in("plain"))
    lines = []
    found = taken_by_moodle(export(tmp_path, "moodle", say=lines.append), {"11", "12"})
    assert set(found) == {"11", "12"} and [list(files) for files in found.values()] == [["/feedback.html"]] * 2
    assert "a message for Jane_van Doe" in found["11"]["/feedback.html"]
    assert lines[0] == "Left out, to be given back by hand: plain." and "for 2 students" in lines[1]


def test_each_member_of_a_group_gets_its_feedback(tmp_path):
    (tmp_path / worksheet.NAME).write_text(
        "Identifier,Full name,Group,Grade,Last modified (grade)\nParticipant 11,Jane,Group A,,-\nParticipant"
        " 12,Max,Group A,,-\nParticipant 77,Zoe,,,-\n"
    )
    found = taken_by_moodle(export(graded(tmp_path, handed_in("Group A", "77")), "moodle"), {"11", "12", "77"})
    assert set(found) == {"11", "12"}, "77 is the group's number, which happens to be a student's, too"


def test_canvas_finds_each_students_feedback_in_a_file_that_opens_under_the_students_name_for_it(tmp_path):
    (tmp_path / "handed in").mkdir()
    for name in ("doejane_LATE_11_501_homework-1.zip", "roemax_12_502_01_single_gpu.ipynb"):
        (tmp_path / "handed in" / name).write_bytes(b"")
    graded(tmp_path / "out", handed_in("doejane", "11"), handed_in("roemax", "12"))
    lines = []
    found = taken_by_canvas(
        export(tmp_path / "out", "canvas", tmp_path / "handed in", lines.append), {"11", "12"}, {"501", "502"}
    )
    with zipfile.ZipFile(io.BytesIO(found.pop("11"))) as pack:
        assert b"a message for doejane" in pack.read("feedback.html")
    assert found == {} and lines[0] == "Left out, to be given back by hand: roemax_12."


def test_grades_that_are_not_final_are_counted(tmp_path):
    with Gradebook(tmp_path) as book:
        store(book, handed_in("Jane", "11"), [said("a", None)])
        store(book, handed_in("Max", "12"), [said("a")])
        write_reports(book, tmp_path)
    lines = []
    export(tmp_path, "moodle", say=lines.append)
    assert lines[0].startswith("1 grade is not final yet")


def test_the_same_feedback_gives_the_same_zip(tmp_path):
    graded(tmp_path, handed_in("Jane", "11"))
    assert export(tmp_path, "moodle").read_bytes() == export(tmp_path, "moodle").read_bytes()


def test_what_is_missing_for_an_export_is_said(tmp_path):
    graded(tmp_path, handed_in("Jane", "11"))
    with pytest.raises(ExportError, match="name what was graded, with --submissions"):
        export(tmp_path, "canvas")
    (tmp_path / "moodles/Jane_11_assignsubmission_file_").mkdir(parents=True)
    (tmp_path / "moodles/Jane_11_assignsubmission_file_/hw.zip").write_bytes(b"")
    with pytest.raises(ExportError, match="moodles has no file as Canvas gives them out"):
        export(tmp_path, "canvas", tmp_path / "moodles")
    (tmp_path / "feedback/Jane_11.html").unlink()
    with pytest.raises(ExportError, match="does not exist: run `python -m grader report"):
        export(tmp_path, "moodle")
