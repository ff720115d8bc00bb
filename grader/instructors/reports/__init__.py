"""Reports: writes tables, files for other systems, and pages for students and instructor from the gradebook.

All reports can be written again at any time (``python -m grader report DIR``), so only the gradebook needs a backup.
"""

import json

from grader.course import UNITS
from grader.instructors import rules, worksheet
from grader.instructors.reports import pages, tables
from grader.instructors.reports.files import write
from grader.instructors.scores import scores

ABSENT = "not_handed_in.json"  # the students in the gradebook whose submissions the last `grade` did not find


def note_absent(folder, students):
    """Note for the report that these students' submissions were not found this time. Raises TellError."""
    write(folder / ABSENT, json.dumps(students))


def _absent(folder):
    try:
        return json.loads((folder / ABSENT).read_text())
    except (OSError, ValueError):
        return []


def tell(book, folder):
    """Write all reports into `folder`, by the rules in course.toml. Returns the number of students. Raises TellError and RulesError."""
    of_class = scores(book, UNITS, rules.read())
    for name, text in {
        "grades.csv": tables.grades(of_class),
        "moodle.csv": tables.moodle(of_class, worksheet.keep(None, folder)),
        "canvas.csv": tables.canvas(of_class),
        "nbgrader.csv": tables.nbgrader(of_class),
        "report.html": pages.report(of_class, _absent(folder)),
    }.items():
        write(folder / name, text)
    for score in of_class:
        name = tables.file_name(score.student)
        write(folder / f"results/{name}.json", tables.gradescope(score))
        write(folder / f"feedback/{name}.html", pages.feedback(score, pages.plots(folder / "plots" / name)))
    return len(of_class)
