"""``python -m grader export``: pack a class's feedback pages into a zip that Moodle or Canvas imports.

Moodle (mod/assign/feedback/file/importziplib.php) finds the student by the number in
`Name_12345_assignfeedback_file_/`. Canvas (`infer_comment_context_from_filename` in app/models/abstract_assignment.rb)
accepts only the file names that it created, and shows the files under the students' names for them. So the feedback
must be in a file of the same type, a zip.
"""

import re
import zipfile

from grader.instructors import collect, worksheet
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import scores_of
from handson.errors import OneSentence
from handson.files import add_to_zip, written_aside, zipped

PAGE = "feedback.html"
OF_CANVAS = re.compile(r"_\d+_\d+_")  # the numbers of a student and of a file


class ExportError(OneSentence, ValueError):
    """The reason why nothing is exported."""


def export(folder, to, submissions=None, say=print, unit=None):
    """Write `to`_feedback.zip into `folder`, the output folder of `grade`, and return its path.

    to: "moodle" or "canvas"; submissions: for Canvas, the zip that was graded; unit: for Moodle, the unit whose
    assignment imports the zip, if each unit has its own. Raises OneSentence errors.
    """
    if to == "canvas" and submissions is None:
        raise ExportError(
            "Canvas takes feedback back under the names of its own files: name what was graded, with --submissions"
        )
    with Gradebook(folder, writing=False) as book:
        of_class, attempts = scores_of(book), book.attempts()
    pages = {score.student: folder / f"feedback/{collect.file_name(score.student)}.html" for score in of_class}
    if absent := [student for student, page in pages.items() if not page.is_file()]:
        raise ExportError(f"{pages[absent[0]]} does not exist: run `python -m grader report {folder}` first")
    sheet = worksheet.with_people(_sheet(folder, unit), attempts, folder) if to == "moodle" else None
    if to == "moodle" and not unit and sheet and of_class:
        if sentence := worksheet.of_one_unit(folder, of_class) or sheet.too_low(of_class[0].highest):
            say(sentence)
    entries = _for_moodle(of_class, sheet) if to == "moodle" else _for_canvas(of_class, submissions)
    whose = {}
    for student, name in ((student, name) for student, names in entries.items() for name in names):
        if (other := whose.setdefault(name, student)) != student:
            raise ExportError(
                f"the feedback of {other} and of {student} would have one name, {name}: give one of them another name,"
                " then grade again"
            )
    out = folder / "_".join(filter(None, (to, unit, "feedback.zip")))
    try:
        with written_aside(out, durable=False) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as pack:
            for student, names in entries.items():
                for name in names:
                    page = pages[student].read_bytes()
                    add_to_zip(pack, *((f"{name}/{PAGE}", page) if to == "moodle" else (name, zipped({PAGE: page}))))
    except OSError as error:
        raise ExportError(
            f"{out} can't be written ({error.strerror}): make room, then run the same command again"
        ) from None
    if unfinished := sum(not score.complete and not score.submission.refused for score in of_class):
        are = "1 grade is" if unfinished == 1 else f"{unfinished} grades are"
        say(f"{are} not final yet, and the pages say so. When `grade` has finished, export again.")
    if left_out := [student for student in pages if not entries.get(student)]:
        say(
            "Left out, to be given back by hand:"
            f" {', '.join(left_out[:5])}{f' and {len(left_out) - 5} more' if len(left_out) > 5 else ''}."
        )
    say(f"{out}: the feedback for {sum(map(len, entries.values()))} students ({out.stat().st_size / 1e6:.1f} MB).")
    return out


def _sheet(folder, unit):
    """Return the worksheet of the assignment that imports the feedback, or None if none was kept. Raises
    ExportError."""
    of_units = worksheet.kept_for_units(folder)
    if unit and unit not in of_units:
        raise ExportError(f"{unit} has no worksheet of its own in {folder}: leave --unit out")
    sheet = of_units[unit] if unit else worksheet.kept(folder)
    if sheet is None and of_units:
        raise ExportError(f"each unit has an assignment of its own: name one with --unit, of {', '.join(of_units)}")
    return sheet


def _for_moodle(of_class, sheet):
    """Return {student: names of folders}: for a group, one for each of its members."""
    members = (
        sheet.members(of_class)
        if sheet
        else {score.student: [(score.submission.name, score.submission.number)] for score in of_class}
    )
    return {
        student: [f"{_plain(name)}_{number}_assignfeedback_file_" for name, number in found if number]
        for student, found in members.items()
    }


def _plain(name):
    """Return a name without characters that Moodle would interpret."""
    return name.replace("_", " ").replace("/", " ").replace("\\", " ").lstrip(".~ ") or "Participant"


def _for_canvas(of_class, submissions):
    given_out = collect.names(submissions)
    if not any(OF_CANVAS.search(name) for names in given_out.values() for name in names):
        raise ExportError(
            f"{submissions} has no file as Canvas gives them out, such as doejane_11_501_homework.zip: name the zip"
            " from Canvas"
        )
    return {
        score.student: [name for name in given_out.get(score.student, ())[-1:] if name.lower().endswith(".zip")]
        for score in of_class
    }
