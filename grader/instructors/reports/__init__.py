"""Runs on the instructor's machine. Students receive it: no.

Reports: write tables, files for other systems, and pages for students and instructors from the gradebook.

All reports can be written again at any time (``python -m grader report DIR``), so only the gradebook needs a backup.
"""

import functools
import json
from collections import defaultdict

from grader.course import UNITS
from grader.instructors import rules, worksheet
from grader.instructors.collect import unpacked
from grader.instructors.grade import digest
from grader.instructors.gradebook import locked
from grader.instructors.reports import leaderboards, pages, score_tables
from grader.instructors.reports.answers import is_other
from grader.instructors.reports.in_words import some
from grader.instructors.reports.report_files import write
from grader.instructors.scores import scores
from handson.words import counted

LOCK, PATIENCE = "reports.lock", 300.0  # seconds to wait for another process that writes reports
PROGRESS = "grading.json"  # progress of a running grader
ABSENT = "not_handed_in.json"  # the students whose submissions the last `grade` did not find


def note_absent(folder, students):
    """Record for the report that these students' submissions were not found this time, although the gradebook or
    Moodle's worksheet has them. Raises ReportError."""
    write(folder / ABSENT, json.dumps(students))


def absent(folder):
    """Return the students that `note_absent` has recorded."""
    try:
        return json.loads((folder / ABSENT).read_text())
    except (OSError, ValueError):
        return []


def scores_of(book):
    """Return the Scores of the class for all reports."""
    course = rules.read()
    work = functools.cache(lambda one, unit: is_other(unpacked(one, book.folder / "submissions"), unit))
    elsewhere = worksheet.of_other_units(book.attempts(), book.folder)
    return scores(book, UNITS, course, digest.outdated(course, book), elsewhere, work)


def outdated(book):
    """Return a sentence on the results that may count but are by older checks, or "" if there are none."""
    whose = {
        score.student: sum(unit.outdated for unit in score.units)
        for score in scores_of(book)
        if any(unit.outdated for unit in score.units)
    }
    again = f"`python -m grader regrade {book.folder}` grades them again"
    number = counted(sum(whose.values()), "result")
    return f"By an older version of the checks: {number}, of {some(whose)}; {again}." if whose else ""


def comments_of(book):
    """Return {student: {(unit, gap): a comment}} on the work of the class, or {} for a student without comments."""
    comments = defaultdict(dict)
    for (student, unit, gap), row in book.comments().items():
        comments[student][unit, gap] = row
    return comments


def write_reports(book, folder):
    """Write all reports into `folder`, with the rules in course.toml. Return the number of students. Raises ReportError
    and RulesError.

    Processes write one after another, and each reads the gradebook when it starts, so the newest reports are written
    last.
    """
    with locked(folder, LOCK, PATIENCE):
        return _tell(book, folder)


def _tell(book, folder):
    of_class, comments = scores_of(book), comments_of(book)
    boards = leaderboards.standings(of_class, folder)
    term, of_units, attempts = worksheet.kept(folder), worksheet.kept_for_units(folder), book.attempts()
    term = worksheet.with_people(term, attempts, folder)
    of_units = {unit: worksheet.with_people(sheet, attempts, folder) for unit, sheet in of_units.items()}
    moodle = {f"moodle_{unit}.csv": score_tables.moodle(of_class, sheet, unit) for unit, sheet in of_units.items()}
    if term or not of_units:
        moodle["moodle.csv"] = score_tables.moodle(of_class, term)
    for name, text in {
        "grades.csv": score_tables.grades(of_class),
        "overview.csv": score_tables.overview(of_class),
        **moodle,
        "canvas.csv": score_tables.canvas(of_class),
        "nbgrader.csv": score_tables.nbgrader(of_class),
        "report.html": pages.report(of_class, absent(folder), folder, boards=boards),
        **({"leaderboard.html": pages.leaderboard(boards)} if boards else {}),
    }.items():
        write(folder / name, text)
    for score in of_class:
        name = score_tables.file_name(score.student)
        write(folder / f"results/{name}.json", score_tables.gradescope(score, comments[score.student]))
        write(
            folder / f"feedback/{name}.html",
            pages.feedback(score, pages.plots(folder / "plots" / name), comments[score.student], boards=boards),
        )
    return len(of_class)
