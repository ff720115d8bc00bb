"""Points set by hand: ``python -m grader adjust``."""

from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import tell
from grader.instructors.reports.files import TellError, number
from grader.instructors.scores import scores


def adjust(folder, student, unit, gap, points, reason, author, say=print):
    """Set or take back points in the gradebook in `folder`, write all reports again, and say what changed. Raises OneSentence errors."""
    with Gradebook(folder, writing=False):
        pass  # raises if there is no gradebook: only `grade` makes one
    with Gradebook(folder) as book:
        before = _score(book, student)
        book.adjust(student, unit, gap, points, reason, author)
        after = _score(book, student)
        try:
            tell(book, folder)
        except TellError as error:
            raise TellError(f"the adjustment is stored, but {str(error).rpartition(', then')[0]}, then run `python -m grader report {folder}`") from None
    say(f"{student}: {_total(before)} -> {_total(after)} points.")
    [of_unit] = [one for one in after.units if one.name == unit]
    by_gap = [one.name for one in of_unit.gaps if one.adjustment]
    if of_unit.adjustment and (gap or by_gap):
        say(f"What is set for {unit} as a whole, {number(of_unit.points)} points, counts in place of what is set for its gaps ({gap or ', '.join(by_gap)}).")


def _score(book, student):
    return next((score for score in scores(book) if score.student == student), None)


def _total(score):
    return f"{number(score.points)}{'' if score.complete else ' so far'}"
