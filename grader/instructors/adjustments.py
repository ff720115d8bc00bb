"""Points and comments by hand: ``python -m grader adjust`` and ``serve``. Points are those of the course; the gradebook
has them in those of the checks. They can be set while a grader runs."""

import re

from grader.instructors import rules
from grader.instructors.collect import meant
from grader.instructors.gradebook import BONUS, Gradebook, GradebookError, Stale
from grader.instructors.reports import scores_of, write_reports
from grader.instructors.reports.in_words import total
from grader.instructors.reports.report_files import ReportError, number
from grader.instructors.reports.score_tables import said
from handson.words import counted

WHOLE = "all"  # how a command names the whole grade in place of a unit


def reports_again(folder):
    """Write all reports in `folder` again, after a change that is stored. Raises OneSentence errors."""
    try:
        with Gradebook(folder, writing=False) as book:
            write_reports(book, folder)
    except ReportError as error:
        raise ReportError(
            f"the change is stored, but {str(error).rpartition(', then')[0]}, then run `python -m grader report"
            f" {folder}`"
        ) from None


def adjust(folder, student, unit, gap, points, reason, author, say=print, version=None, write=reports_again):
    """Set or take back points in the gradebook in `folder`, write all reports again, and say what changed.

    unit: WHOLE for the whole grade, BONUS for bonus points; points: None takes back; version: Gradebook.version of what
    the person has seen, or None for whatever is there; write: what to call afterwards, with the folder. Raises
    OneSentence errors: Stale if it was changed since then.
    """
    student, unit = _student(folder, student), "" if unit == WHOLE else unit
    after = _change(
        folder,
        student,
        unit,
        gap,
        lambda book, score: _adjust(book, score, student, unit, gap, points, reason, author),
        version,
        write,
        say,
    )
    if after.adjustment and unit not in ("", BONUS):
        say(
            f"What is set for the whole grade, {number(after.points)} points, counts in place of what is set for"
            f" {unit}."
        )
    for of_unit in after.units:
        by_gap = [one.name for one in of_unit.gaps if one.adjustment]
        if of_unit.name == unit and of_unit.adjustment and (gap or by_gap):
            say(
                f"What is set for {unit} as a whole, {number(of_unit.points)} points, counts in place of what is set"
                f" for its gaps ({gap or ', '.join(by_gap)})."
            )


def confirm(folder, student, unit, gap, author, say=print, version=None, write=reports_again):
    """Let an adjustment that was made for an earlier submission hold for the one that counts now. Otherwise as
    `adjust`."""
    student, unit = _student(folder, student), "" if unit == WHOLE else unit

    def change(book, score):
        row = next((row for row in score.earlier if (row["unit"], row["gap"]) == (unit, gap)), None) if score else None
        if row is None:
            raise GradebookError(
                f"{student} has no adjustment of {_what(unit, gap)} from an earlier submission: see `python -m grader"
                f" adjust {folder} --list`"
            )
        book.adjust(student, unit, gap, row["by_checks"], row["reason"], author, _counting(score, unit))

    _change(folder, student, unit, gap, change, version, write, say)


def adjustments(folder):
    """A line for each adjustment in the gradebook in `folder`. Raises OneSentence errors."""
    with Gradebook(folder, writing=False) as book:
        of_class = scores_of(book)
    lines = []
    for score in of_class:
        of_units = [thing.adjustment for unit in score.units for thing in (*unit.gaps, *unit.others, unit)]
        lines += [_line(score, row) for row in (*of_units, score.adjustment, score.bonus) if row]
        note = "; made for an earlier submission, does not count{}: confirm it with --confirm, or take it back"
        lines += [_line(score, row) + note.format(_without(score, row)) for row in score.earlier]
    return lines


def _student(folder, name):
    with Gradebook(folder, writing=False) as book:
        return student_of(book, name)


def student_of(book, name):
    """The student or the group whom a command names, with or without the number. Raises GradebookError for a name that
    more than one has, or that only looks like somebody's."""
    attempts, folder = book.attempts(), book.folder
    students = rules.of_students(rules.in_gradebook(rules.read(), attempts), attempts)
    as_group = {one.student: group for group, pool in students.values() for one in pool if one.student not in students}
    plain = {one.student: one.name for one in attempts}
    known = {student: plain.get(student, re.sub(r"_[0-9]+$", "", student)) for student in students}
    known |= {group: group for group, _ in students.values() if group} | {student: student for student in as_group}
    student, others = meant(name, known)
    if others:
        raise GradebookError(
            f"there is no student {name!r} in {folder}: did you mean {' or '.join(map(repr, others))}?"
        )
    return as_group.get(student, student or name)


def _line(score, row):
    return f"{score.student}: {_what(row['unit'], row['gap'])} set to {number(row['points'])}, {said(row)}"


def _without(score, row):
    """The points without an adjustment that does not count, in words; "" where there is no such gap."""
    things = [((unit.name, gap.name), gap) for unit in score.units for gap in (*unit.gaps, *unit.others)]
    things += [((unit.name, ""), unit) for unit in score.units] + [(("", ""), score)]
    found = next((thing for where, thing in things if where == (row["unit"], row["gap"])), None)
    return f" ({counted(number(found.points), 'point')} without it)" if found else ""


def _what(unit, gap):
    return ", ".join(filter(None, (unit or "the whole grade", gap)))


def _adjust(book, score, student, unit, gap, points, reason, author):
    """Store an adjustment, with the points that it has by the checks."""
    if score is None:
        book.adjust(student, unit, gap, points, reason, author)  # raises
        return
    of_unit = next((one for one in score.units if one.name == unit), None)
    of_gap = next((one for one in (*of_unit.gaps, *of_unit.others) if one.name == gap), None) if of_unit else None
    adjusted = of_gap if gap else of_unit if unit else score
    factor = adjusted.factor if adjusted else 1.0
    if points is not None and unit == BONUS and not 0 <= points <= score.rules.bonus:
        allowed = (
            f"has from 0 to {number(score.rules.bonus)}"
            if score.rules.bonus
            else "needs a line such as bonus = 5 in course.toml"
        )
        raise GradebookError(f"{points:g} points can't be given: {BONUS} {allowed}")
    if (
        points is not None
        and adjusted
        and (factor != 1 or not score.units)
        and not 0 <= points <= adjusted.max_points + 1e-9
    ):
        raise GradebookError(
            f"{points:g} points can't be given: {_what(unit, gap)} has from 0 to {number(adjusted.max_points)} in"
            " course.toml"
        )
    by_checks = points / factor if points is not None and factor else points
    book.adjust(student, unit, gap, by_checks, reason, author, _counting(score, unit))


def _counting(score, unit):
    """The Submission that counts in a unit, or for the whole grade."""
    return next((one.attempt for one in score.units if one.name == unit), score.attempts[-1])


def comment(folder, student, unit, gap, text, author, say=print, version=None, write=reports_again):
    """Say something to a student about a gap, a unit or everything (WHOLE), without other points; "" takes it back.
    Otherwise as `adjust`."""
    unit = "" if unit == WHOLE else unit

    def change(book, score):
        if score is None:
            raise GradebookError(f"there is no student {student!r} in {folder}: see the first column of grades.csv")
        gaps = {one.name: {"", *(gap.name for gap in (*one.gaps, *one.others))} for one in score.units} | {"": {""}}
        if gap not in gaps.get(unit, ()):
            raise GradebookError(f"{student} has no result in {_what(unit, gap)}, so there is nothing to comment on")
        book.comment(student, unit, gap, text, author, _counting(score, unit).digest)

    _change(folder, student, unit, gap, change, version, write, lambda line: None)


def _change(folder, student, unit, gap, change, version, write, say):
    """Change the gradebook in `folder`, write all reports again, and say how the grade of the student, or of each
    member of the group, changed. Returns the new Score, of a group that of its first member."""
    with Gradebook(folder, writing=False):
        pass  # raises if there is no gradebook: only `grade` makes one
    with Gradebook(folder, alone=False) as book, book.together():
        if version is not None and version != book.version(student, unit, gap):
            raise Stale(f"{student}, {_what(unit, gap)}: this has changed meanwhile")
        before = _scores(book, student)
        change(book, before[0] if before else None)  # raises if there is nobody
        after = _scores(book, student)
    write(folder)
    for old, new in zip(before, after, strict=True):
        scale = f", on the scale to {number(new.rules.scale)}" if new.rules.scale else ""
        say(f"{new.student}: {total(old)} -> {total(new)}{scale}.")
    return after[0]


def _scores(book, student):
    """The Score of a student, or for the name of a group those of its members; none if there is nobody."""
    of_class = scores_of(book)
    return [score for score in of_class if score.student == student] or [
        score for score in of_class if score.group == student
    ]
