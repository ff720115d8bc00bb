"""Points set by hand: ``python -m grader adjust``."""

from grader.instructors.gradebook import Gradebook, GradebookError
from grader.instructors.reports import tell
from grader.instructors.reports.files import TellError, number
from grader.instructors.reports.tables import said
from grader.instructors.scores import scores

WHOLE = "all"  # how a command names the whole grade in place of a unit


def adjust(folder, student, unit, gap, points, reason, author, say=print):
    """Set or take back points in the gradebook in `folder`, write all reports again, and say what changed.

    unit: WHOLE for the whole grade; points: None takes back. Raises OneSentence errors.
    """
    unit = "" if unit == WHOLE else unit
    after = _change(folder, student, lambda book: book.adjust(student, unit, gap, points, reason, author), say)
    if after.adjustment and unit:
        say(f"What is set for the whole grade, {number(after.points)} points, counts in place of what is set for {unit}.")
    for of_unit in after.units:
        by_gap = [one.name for one in of_unit.gaps if one.adjustment]
        if of_unit.name == unit and of_unit.adjustment and (gap or by_gap):
            say(f"What is set for {unit} as a whole, {number(of_unit.points)} points, counts in place of what is set for its gaps ({gap or ', '.join(by_gap)}).")


def confirm(folder, student, unit, gap, author, say=print):
    """Let an adjustment that was made for an earlier submission hold for the one that counts now. Raises OneSentence errors."""
    unit = "" if unit == WHOLE else unit
    with Gradebook(folder, writing=False) as book:
        row = book.earlier_adjustments().get((student, unit, gap))
    if row is None:
        where = ", ".join(filter(None, (unit or "the whole grade", gap)))
        raise GradebookError(f"{student} has no adjustment of {where} from an earlier submission: see `python -m grader adjust {folder} --list`")
    _change(folder, student, lambda book: book.adjust(student, unit, gap, row["points"], row["reason"], author), say)


def adjustments(folder):
    """A line for each adjustment in the gradebook in `folder`. Raises OneSentence errors."""
    with Gradebook(folder, writing=False) as book:
        counting, earlier = book.adjustments().values(), book.earlier_adjustments().values()
    return [
        f"{row['student']}: {', '.join(filter(None, (row['unit'] or 'the whole grade', row['gap'])))} set to {number(row['points'])}, {said(row)}{note}"
        for rows, note in ((counting, ""), (earlier, "; made for an earlier submission, does not count: confirm it with --confirm, or take it back"))
        for row in rows
    ]


def _change(folder, student, change, say):
    """Change the gradebook in `folder`, write all reports again, and say how the student's total changed. Returns the new Score."""
    with Gradebook(folder, writing=False):
        pass  # raises if there is no gradebook: only `grade` makes one
    with Gradebook(folder) as book:
        before = _score(book, student)
        change(book)
        after = _score(book, student)
        try:
            tell(book, folder)
        except TellError as error:
            raise TellError(f"the adjustment is stored, but {str(error).rpartition(', then')[0]}, then run `python -m grader report {folder}`") from None
    say(f"{student}: {_total(before)} -> {_total(after)}.")
    return after


def _score(book, student):
    return next((score for score in scores(book) if score.student == student), None)


def _total(score):
    return f"{number(score.points)} {'point' if score.points == 1 else 'points'}{'' if score.complete else ' so far'}"
