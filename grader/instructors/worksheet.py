"""Moodle's offline grading worksheet: submission times, groups, and the file from which Moodle imports grades.

`grade --worksheet FILE` keeps a copy in the folder of the grades, and `moodle.csv` is that copy, filled in. With one
`--unit`, the copy belongs to that unit, and `moodle_UNIT.csv` has only the points of that unit: for a term with an
assignment for each unit. Moodle numbers students separately in each assignment. Columns and formats are those of
mod/assign/gradingtable.php and mod/assign/feedback/offline in Moodle's source, in English: Moodle itself expects the
headings in the language of the page.
"""

import csv
import io
import re
from collections import namedtuple
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from grader.course import UNITS
from grader.instructors.collect import NAMELESS, Listed, alike, in_groups
from handson.errors import OneSentence
from handson.files import written_aside

NAME = "moodle_worksheet.csv"
NEEDED = ("Identifier", "Grade", "Last modified (grade)")  # columns that Moodle's import requires
STATUS, SUBMITTED_STATUS = "Status", "Submitted for grading"  # further text states how late it is, or that it is graded
MAXIMUM = "Maximum grade"
SUBMITTED, FULL_NAME, GROUP, COMMENTS = "Last modified (submission)", "Full name", "Group", "Feedback comments"
EMAIL = "Email address"
NAMES = (FULL_NAME, EMAIL, GROUP)
OF_UNIT = "moodle_worksheet_{}.csv"  # the copy of a unit's worksheet
# formats: English; American; 24 hours; ISO
FORMATS = ("%A, %d %B %Y, %I:%M %p", "%A, %B %d, %Y, %I:%M %p", "%A, %d %B %Y, %H:%M", "%Y-%m-%d %H:%M:%S")
NOTHING = ("", "-")
LARGEST = 50_000_000  # bytes


# a student of the gradebook, with all names, numbers and e-mail addresses so far
Person = namedtuple("Person", "student names numbers emails")


class WorksheetError(OneSentence, ValueError):
    """The reason why a file is not a worksheet."""


@dataclass(frozen=True)
class Worksheet:
    """The content of a worksheet. head: the names of the columns; rows: a {column: text} for each student, as Moodle
    wrote them; whose: {number: the student in the gradebook} of those who may have submitted nothing under this number,
    from `of_people`."""

    head: tuple
    rows: tuple
    whose: dict = field(default_factory=dict)

    def of_people(self, people, mails):
        """Return the same with `whose`, for `people` and `mails` as in `listed`."""
        known = {person.student for person in people}
        rows = replace(self, rows=tuple(row | {SUBMITTED: ""} for row in self.rows))  # times are not needed
        whose = {one.number: one.student for one in rows.listed(None, people, mails) if one.student in known}
        return replace(self, whose=whose)

    def listed(self, zone=None, people=(), mails=()):
        """Return the `Listed` students.

        zone: the tzinfo of the clock that Moodle showed at the download; by default that of this machine. people: each
        Person of the gradebook: a row belongs to a person by its number, else by e-mail address, else by full name;
        mails: the addresses in all worksheets so far. Raises WorksheetError.
        """
        rows = [row for row in self.rows if _number(row)]
        certain = {_number(row): found for row in rows if (found := _certain(row, people))}
        taken = {person.student for found in certain.values() for person in found}
        left = [person for person in people if person.student not in taken]
        names = [alike(_name(row)) for row in rows if _number(row) not in certain]
        return [
            self._listed(
                row, zone, certain.get(_number(row)) or ([] if _mail(row) in mails else _alike(row, left, names))
            )
            for row in rows
        ]

    def _listed(self, row, zone, people):
        student = people[0].student if len(people) == 1 else _student(row)
        others = tuple(dict.fromkeys(person.student for person in people)) if len(people) > 1 else ()
        return Listed(student, _name(row), _number(row), _group(row), _handed_in(row, zone), others)

    @property
    def numbers(self):
        return {number for row in self.rows if (number := _number(row))}

    def emails(self):
        """Return {number: e-mail address} of students with an address."""
        return {_number(row): mail for row in self.rows if (mail := _mail(row))}

    def grades(self, scores):
        """Return (row, its Score or None) for each row; all members of a group have its score."""
        of_moodle = self._in_groups(score.submission for score in scores)
        by_group = {of_moodle[score.student]: score for score in scores if score.student in of_moodle}
        # a group and a student can have the same number
        own = [score for score in scores if score.student not in of_moodle]
        by_number = {number: score for score in own for number in _numbers(score) if number}
        by_student = {score.student: score for score in own}  # includes students whose work a partner has submitted
        return [
            (
                row,
                by_group.get(_group(row))
                or by_number.get(_number(row))
                or by_student.get(self.whose.get(_number(row))),
            )
            for row in self.rows
        ]

    def _in_groups(self, submissions):
        """Return the result of `in_groups` for the groups of the worksheet."""
        return in_groups(
            submissions, [Listed(_student(row), _name(row), _number(row), _group(row)) for row in self.rows]
        )

    def missing(self, collected, groups, listed=()):
        """Return the students who have submitted according to Moodle, but have no Submission in `collected`. groups:
        {name: students} of the course; listed: those with another number in the gradebook, and their number here."""
        known = {one.number: one.student for one in listed}
        rows = [row for row in self._without(collected, groups) if _submitted(row)]
        return sorted(known.get(_number(row)) or _student(row) for row in rows)

    def nothing(self, collected, groups):
        """Return the students who have submitted nothing, also according to Moodle."""
        return sorted(_student(row) for row in self._without(collected, groups) if not _submitted(row))

    def _without(self, collected, groups):
        """Return the rows of students without a Submission in `collected`."""
        names = {alike(name) for one in collected for name in (one.name, one.student)}
        of_moodle = self._in_groups(collected)
        there = set(of_moodle.values())
        # a group and a student can have the same name and number
        numbers = {one.number for one in collected if one.student not in of_moodle}
        names -= {alike(name) for one in collected if one.student in of_moodle for name in (one.name, one.student)}
        together = {
            alike(one)
            for group, members in groups.items()
            if names & set(map(alike, (group, *members)))
            for one in members
        }

        def is_there(row):
            handed_in = _number(row) in numbers or alike(_student(row)) in names or _group(row) in there
            # course.toml may omit the number
            return handed_in or together & {alike(_student(row)), alike(_name(row))}

        return [row for row in self.rows if _number(row) and not is_there(row)]

    @property
    def lowest_maximum(self):
        """Return the lowest of Moodle's maximum grades, or None if the worksheet has none."""
        with suppress(ValueError):
            return min((float(row[MAXIMUM].replace(",", ".")) for row in self.rows if row.get(MAXIMUM)), default=None)

    def too_low(self, highest):
        """Return a sentence if Moodle's maximum grade is lower than the `highest` grade of the course, otherwise
        None."""
        lowest = self.lowest_maximum
        if lowest is not None and lowest < highest:
            return (
                f"Moodle's maximum grade is {lowest:g}, and it ignores higher ones; here the highest is"
                f" {highest:g}: change it in Moodle, or `scale` in course.toml."
            )

    def members(self, scores):
        """Return {student of a Score: the name and number of each student in the worksheet with this Score}."""
        found = {score.student: [] for score in scores}
        for row, score in self.grades(scores):
            if score and _number(row):
                found[score.student].append((_name(row), _number(row)))
        return found


def read(path):
    """Return the Worksheet in a file. Raises WorksheetError."""
    try:
        if path.stat().st_size > LARGEST:
            raise WorksheetError(f"{path} is too large for a grading worksheet: download it from Moodle again")
        text = path.read_text(encoding="utf-8-sig")
        # some spreadsheets save a worksheet with other separators than commas
        separator = max(",;\t", key=text.partition("\n")[0].count)
        rows = list(csv.reader(io.StringIO(text), delimiter=separator))
    except OSError as error:
        raise WorksheetError(
            f"{path} can't be read ({error.strerror}): name the grading worksheet from Moodle"
        ) from None
    except (ValueError, csv.Error) as error:
        raise WorksheetError(
            f"{path} is not a CSV in UTF-8 ({error}): download the grading worksheet from Moodle again"
        ) from None
    head = tuple(cell.strip() for cell in rows[0]) if rows else ()
    if missing := [column for column in NEEDED if column not in head]:
        raise WorksheetError(
            f"{path} has no column {missing[0]!r}: download the grading worksheet from Moodle again, with Moodle in"
            " English"
        )
    found = tuple(dict(zip(head, row, strict=False)) for row in rows[1:] if any(row))
    numbers = [number for row in found if (number := _number(row))]
    if twice := (
        next((number for number in numbers if numbers.count(number) > 1), None)
        if len(set(numbers)) < len(numbers)
        else None
    ):
        raise WorksheetError(f"{path} has Participant {twice} twice: download it from Moodle again")
    return Worksheet(head, found)


def keep(path, folder, unit=None):
    """Keep a copy of the worksheet at `path`, which `read` has read, in `folder`, and one for the `unit` if only one is
    graded. Return whether it is that of the whole term. Raises WorksheetError, also for a worksheet of another
    assignment than the earlier ones, without a unit."""
    new, term, of_units = read(path), kept(folder), kept_for_units(folder)
    others = [sheet for sheet in (term, *of_units.values()) if sheet and sheet.numbers and new.numbers]
    another = any(not sheet.numbers & new.numbers for sheet in others)
    if another and not unit:
        raise WorksheetError(
            f"{path} is of another assignment of Moodle's than the worksheet before: name its unit, with --unit"
        )
    if unit:
        _copy(path, folder / OF_UNIT.format(unit))
    if not another:
        _copy(path, folder / NAME)
    elif term and any(sheet.numbers & term.numbers for sheet in of_units.values()):  # it was that of one unit
        (folder / NAME).unlink()
        (folder / "moodle.csv").unlink(missing_ok=True)
    return not another


def _copy(path, copy):
    if copy.exists() and copy.samefile(path):
        return
    try:
        with written_aside(copy) as file:
            file.write(path.read_bytes())
    except OSError as error:
        raise WorksheetError(
            f"{copy} can't be written ({error.strerror}): make room, then run the same command again"
        ) from None


def kept(folder):
    """Return the kept Worksheet of the whole term in `folder`, or None. Raises WorksheetError."""
    return read(folder / NAME) if (folder / NAME).exists() else None


def kept_for_units(folder):
    """Return {unit: its kept Worksheet in `folder`}. Raises WorksheetError."""
    return {unit: read(path) for unit in UNITS if (path := folder / OF_UNIT.format(unit)).exists()}


def of_other_units(attempts, folder):
    """Return (student, digest, unit) of the Submissions for other units, if each unit has its own assignment: from the
    numbers in the worksheets that were kept in `folder`. Raises WorksheetError."""
    term, of_units = kept(folder), {unit: sheet.numbers for unit, sheet in kept_for_units(folder).items()}
    if term or not of_units:
        return frozenset()
    units_of, found = {}, set()
    for one in attempts:
        units = [unit for unit, numbers in of_units.items() if one.number in numbers]
        units_of.setdefault((one.student, one.digest), set()).update(units or UNITS)
    for (student, digest), units in units_of.items():
        found |= {(student, digest, unit) for unit in UNITS if unit not in units}
    return found


def with_people(sheet, attempts, folder):
    """Return a kept worksheet with the students of its rows, or None for None. attempts: all Submissions. Raises
    WorksheetError."""
    return sheet and sheet.of_people(people(attempts, folder), set(mails(folder).values()))


def sheets(folder):
    """Return all worksheets that were kept in `folder`. Raises WorksheetError."""
    return [sheet for sheet in (kept(folder), *kept_for_units(folder).values()) if sheet]


def of_one_unit(folder, scores):
    """Return a warning if the worksheet of the whole term in `folder` seems to be that of the only graded unit, because
    its maximum grade is that of the unit: `moodle.csv` then fits no assignment. Otherwise None. scores: the Scores of
    the class. Raises WorksheetError."""
    term, of_units = kept(folder), kept_for_units(folder)
    if not term or not scores or len(of_units) != 1:
        return None
    [(unit, sheet)] = of_units.items()
    points = sum(one.max_points for one in scores[0].units if one.name == unit)
    if sheet.numbers & term.numbers and sheet.lowest_maximum == points < scores[0].highest:
        return (
            f"Moodle's maximum grade is {points:g}, as the points of {unit}: upload moodle_{unit}.csv, not moodle.csv."
        )
    return None


def mails(folder):
    """Return {number: e-mail address} in all worksheets that were kept in `folder`. Raises WorksheetError."""
    return {number: mail for sheet in sheets(folder) for number, mail in sheet.emails().items()}


def people(attempts, folder):
    """Return each Person of a gradebook. attempts: all Submissions; folder: where worksheets were kept. Raises
    WorksheetError."""
    emails, found = mails(folder), {}
    for one in attempts:
        person = found.setdefault(one.student, Person(one.student, set(), set(), set()))
        person.names.add(alike(one.name))
        if one.number:
            person.numbers.add(one.number)
            person.emails.update(filter(None, [emails.get(one.number)]))
    return list(found.values())


def _certain(row, people):
    """Return the people to whom this row belongs, by number or else by e-mail address."""
    mail = _mail(row)
    return [person for person in people if _number(row) in person.numbers] or [
        person for person in people if mail and mail in person.emails
    ]


def _alike(row, people, names):
    """Return the people to whom this row may belong, by their full name. names: the names in all rows without a certain
    person. A name that occurs twice, or has another e-mail address, identifies nobody."""
    name, mail = alike(_name(row)), _mail(row)
    same = [person for person in people if person.numbers and name in person.names]
    other_address = any(mail and person.emails for person in same)
    return [] if name == NAMELESS else same * max(names.count(name), 2 * other_address)


def _mail(row):
    return row.get(EMAIL, "").strip().casefold()


def _numbers(score):
    """Return all numbers that Moodle gave to the student of a Score."""
    return {score.submission.number, *(one.number for one in score.attempts if one.student == score.student)}


def _number(row):
    """Return the number in "Participant 12345", in any of Moodle's languages."""
    found = re.search(r"[0-9]+$", row.get("Identifier", "").strip())
    return found[0] if found else ""


def _submitted(row):
    return row.get(STATUS, "").startswith(SUBMITTED_STATUS)


def _student(row):
    return f"{_name(row)}_{_number(row)}"


def _name(row):
    return row.get(FULL_NAME, "").strip() or "Participant"


def _group(row):
    return row.get(GROUP, "").strip()


def _handed_in(row, zone):
    text = " ".join(row.get(SUBMITTED, "").split())  # newer Moodles have a narrow space before AM and PM
    if text in NOTHING:
        return None
    for form in FORMATS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=zone).astimezone(UTC).isoformat(timespec="seconds")
        except (ValueError, OverflowError):
            continue
    raise WorksheetError(
        f"{SUBMITTED} of {row['Identifier']} is {text!r:.60}, which is not a date: download the worksheet with Moodle"
        " in English"
    )
