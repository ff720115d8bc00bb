"""``python -m grader tour``: grades a class of known answers on two engines: solutions, untouched exercises, and some
wrong answers."""

import shutil
import time

from rich.console import Console
from rich.table import Table

from answers.known import of_unit
from grader.course import UNITS, ready
from grader.exercises import given_out, solved
from grader.instructors.grade.grading import grade
from grader.instructors.gradebook import Gradebook
from grader.instructors.release import notebook
from grader.judging import ONLY_IF
from grader.verdict import FAILED, NOT_FOUND, PASSED, counted
from handson.errors import OneSentence

ENGINES = 2


class TourError(OneSentence):
    """Why the tour's class has no place."""


def tour(folder, trusted, say):
    """Make the submissions of a class in `folder`, which is emptied before, grade them and show the result. Returns
    whether all points are as expected. Raises TourError."""
    begin = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TourError(f"{folder} can't be made ({error.strerror}): name another folder with --folder") from None
    say(
        "\nThe grader now grades a class of known answers: the solutions, untouched exercises, and answers with one"
        " mistake each."
    )
    expected = hand_in(folder / "handed_in")
    grade(folder / "handed_in", folder / "graded", engines=ENGINES, trusted=trusted, say=say)
    table = Table("student", "unit", "points", "of", "what was found", box=None, header_style="bold")
    fine = True
    with Gradebook(folder / "graded", writing=False) as book:
        for (student, unit), verdicts in sorted(book.results().items()):
            if unit not in expected[student]:
                continue
            verdicts = counted([verdict for verdict in verdicts if verdict.status != NOT_FOUND])
            points, most = (
                sum(verdict.points or 0 for verdict in verdicts),
                sum(verdict.max_points for verdict in verdicts),
            )
            wrong = [verdict for verdict in verdicts if verdict.status != PASSED]
            first = min(
                wrong, key=lambda verdict: (verdict.status != FAILED, verdict.message.startswith(ONLY_IF)), default=None
            )
            table.add_row(
                student,
                unit,
                f"{points:g}",
                f"{most:g}",
                f"{first.gap}: {first.message or first.status}" if first else "everything right",
            )
            fine &= expected[student][unit](points, most)
    console = Console()
    Console(width=console.width if console.is_terminal else 130).print(table)
    say(
        f"Grading took {time.monotonic() - begin:.0f} s; feedback for each student and a report on the class are in"
        f" {folder / 'graded'}"
    )
    return fine


def hand_in(folder):
    """Fill `folder` with submissions. Returns {student: {unit: a function of points and most points, true if they are
    as expected}}."""
    expected = {"solutions": {}, "untouched": {}}
    for unit in ready():
        for part in UNITS[unit]:
            if any(check.runner for check in part.checks):
                continue  # a contest, which takes minutes
            _write(folder / "solutions" / part.file, solved(part.file))
            _write(folder / "untouched" / part.file, given_out(part.file).text)
            worth = {check.gap for check in part.checks if any(one.points for one in check.criteria)}
            scripts = [
                mistake
                for mistake in of_unit(unit, part.folder)[0]
                if part.file.endswith(".py") and mistake.gap in worth
            ]
            if scripts:
                mistake = scripts[len(scripts) // 2]
                student = f"{part.track or 'both tracks'}: {mistake.name.replace('/', ' ')}"
                _write(folder / student / part.file, solved(part.file, **{mistake.gap: mistake.code}))
                expected[student] = {unit: lambda points, most: points < most}
        expected["solutions"][unit] = lambda points, most: points == most
        expected["untouched"][unit] = lambda points, most: points == 0
    return expected


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook(text) if path.suffix == ".ipynb" else text)
