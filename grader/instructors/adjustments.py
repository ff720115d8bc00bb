"""Points and comments that a person sets: ``python -m grader adjust`` and ``serve``. Points are on the scale of the
course; the gradebook stores them on that of the checks. They can be set while a grader runs."""

import re

from grader.instructors import rules, worksheet
from grader.instructors.collect import Listed, Submission, alike, meant
from grader.instructors.gradebook import BONUS, Gradebook, GradebookError, Stale
from grader.instructors.reports import scores_of, write_reports
from grader.instructors.reports.in_words import changes, total
from grader.instructors.reports.report_files import ReportError, number
from grader.instructors.reports.score_tables import said
from handson.words import counted

WHOLE = "all"  # in commands, this word selects the whole grade instead of a unit


def reports_again(folder):
    """Write all reports in `folder` again, after a stored change. Raises OneSentence errors."""
    try:
        with Gradebook(folder, writing=False) as book:
            write_reports(book, folder)
    except ReportError as error:
        raise ReportError(
            f"the change is stored, but {str(error).rpartition(', then')[0]}, then run `python -m grader report"
            f" {folder}`"
        ) from None


def adjust(folder, student, unit, gap, points, reason, author, say=print, version=None, write=reports_again):
    """Set or remove points in the gradebook in `folder`, write all reports again, and report the change.

    unit: WHOLE for the whole grade, BONUS for bonus points; points: None removes an adjustment; version: the
    Gradebook.version that the person has seen, or None for any; write: a function of the folder that is called
    afterwards. Raises OneSentence errors: Stale if the grade was changed in the meantime.
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
            f"What is set for the whole grade, {number(after.points)} points, replaces the points that are set for"
            f" {unit}."
        )
    for of_unit in after.units:
        by_gap = [one.name for one in of_unit.gaps if one.adjustment]
        if of_unit.name == unit and of_unit.adjustment and (gap or by_gap):
            say(
                f"What is set for {unit} as a whole, {number(of_unit.points)} points, replaces the points that"
                f" are set for its gaps ({gap or ', '.join(by_gap)})."
            )


def adjust_all(folder, students, unit, gap, points, reason, author, say=print, write=reports_again):
    """Set the points of several students, all or nothing, as `adjust` does for one. students: None for everybody in the
    gradebook with this unit or gap. Raises OneSentence errors."""
    unit = "" if unit == WHOLE else unit
    with Gradebook(folder, writing=False):
        pass
    with Gradebook(folder, alone=False) as book, book.together():
        of_class = scores_of(book)
        before = {score.student: total(score) for score in of_class}
        chosen = [score for score in of_class if students is None or score.student in students]
        if students is None and unit not in ("", BONUS):
            chosen = [score for score in chosen if _has(score, unit, gap)]
        if not chosen:
            raise GradebookError(f"nobody has a result in {_what(unit, gap)}, so no points are set")
        for score in chosen:
            _adjust(book, score, score.student, unit, gap, points, reason, author)
        after = scores_of(book)
    write(folder)
    say(f"{_what(unit, gap)}: set for {counted(len(chosen), 'student')}.")
    for line in changes(before, after):
        say(line)


def _has(score, unit, gap):
    of_unit = next((one for one in score.units if one.name == unit and one.attempt), None)
    return of_unit and (not gap or gap in {one.name for one in (*of_unit.gaps, *of_unit.others)})


def add(folder, name, say=print):
    """Add a student who has submitted nothing, so that they can have points. The name is that in Moodle's worksheet, or
    any other new name. Raises OneSentence errors."""
    with Gradebook(folder, writing=False) as book:
        known = {one.student for one in book.attempts()}
    listed = [one for sheet in worksheet.sheets(folder) for one in sheet.listed()]
    forms = {alike(form): one for one in listed for form in (one.name, one.student)}
    one = forms.get(alike(name), Listed(name, name, ""))
    if one.student in known:
        raise GradebookError(f"{one.student} is in the gradebook already: leave --new out")
    reason = "Nothing was handed in."
    nothing = Submission(one.student, one.name, one.number, 1, 0.0, False, None, "", (), reason)
    with Gradebook(folder, alone=False) as book:
        book.record([nothing])
    say(f"{one.student} is in the gradebook now, with nothing handed in.")
    return one.student


def confirm(folder, student, unit, gap, author, say=print, version=None, write=reports_again):
    """Apply an adjustment of an earlier submission to the one that counts now. Otherwise like `adjust`."""
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
    """Return a line for each adjustment in the gradebook in `folder`. Raises OneSentence errors."""
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
    """Return the student or the group with this name, with or without the number. Raises GradebookError if several have
    the name, or if it only resembles a name."""
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
    """Return the points without an adjustment that does not count, in words, or "" if there is no such gap."""
    things = [((unit.name, gap.name), gap) for unit in score.units for gap in (*unit.gaps, *unit.others)]
    things += [((unit.name, ""), unit) for unit in score.units] + [(("", ""), score)]
    found = next((thing for where, thing in things if where == (row["unit"], row["gap"])), None)
    return f" ({counted(number(found.points), 'point')} without it)" if found else ""


def _what(unit, gap):
    return ", ".join(filter(None, (unit or "the whole grade", gap)))


def _adjust(book, score, student, unit, gap, points, reason, author):
    """Store an adjustment, with the points of the checks for comparison."""
    if score is None:
        book.adjust(student, unit, gap, points, reason, author)  # raises GradebookError
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
    """Return the Submission that counts in a unit, or for the whole grade."""
    return next((one.attempt for one in score.units if one.name == unit), score.attempts[-1])


def comment(folder, student, unit, gap, text, author, say=print, version=None, write=reports_again):
    """Store a comment to a student on a gap, a unit or everything (WHOLE), without changing points; "" removes it.
    Otherwise like `adjust`."""
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
    """Change the gradebook in `folder`, write all reports again, and report how the grade of the student, or of each
    member of the group, changed. Return the new Score; for a group, that of its first member."""
    with Gradebook(folder, writing=False):
        pass  # raises if there is no gradebook, because only `grade` creates one
    with Gradebook(folder, alone=False) as book, book.together():
        if version is not None and version != book.version(student, unit, gap):
            raise Stale(f"{student}, {_what(unit, gap)}: this has changed in the meantime")
        before = _scores(book, student)
        change(book, before[0] if before else None)  # raises if there is no such student
        after = _scores(book, student)
    write(folder)
    for old, new in zip(before, after, strict=True):
        scale = f", on the scale to {number(new.rules.scale)}" if new.rules.scale else ""
        say(f"{new.student}: {total(old)} -> {total(new)}{scale}.")
    return after[0]


def _scores(book, student):
    """Return the Score of a student, or those of a group's members, or [] for an unknown name."""
    of_class = scores_of(book)
    return [score for score in of_class if score.student == student] or [
        score for score in of_class if score.group == student
    ]
