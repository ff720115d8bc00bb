"""The rules of a course: units and points that count, deadlines, late days, groups and the scale, from the instructor's
course.toml.

docs/course.toml is an example with all keys. The gradebook keeps the checks' results; scores.py applies the rules each
time scores are computed, so a change of the file changes grades without grading again. Without the file there are no
rules.
"""

import difflib
import math
import re
import tomllib
import zoneinfo
from collections import defaultdict
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from grader.course import UNITS, most_points, name_of_gap
from grader.verdict import most
from handson.cluster import site as sites
from handson.errors import OneSentence
from handson.files import COURSE
from handson.tables import known, table, wanted

FILE = COURSE / "course.toml"
KEYS = "title site language zone scale pass counts attempts drop_lowest bonus pseudonyms".split()
KEYS += "late units students groups".split()
LAST, BEST, LAST_IN_TIME = "last", "best", "last in time"
MOST_LATE_DAYS = 30
DAY = timedelta(days=1)
# types of values, with descriptions for messages
Number = Annotated[float, Meta(ge=0, le=1e9, description="a number, 0 or more")]
AboveZero = Annotated[float, Meta(gt=0, le=1e9, description="a number, above 0")]
Percent = Annotated[float, Meta(ge=0, le=100, description="a number, from 0 to 100")]
Minutes = Annotated[float, Meta(ge=0, le=100_000, description="a number, from 0 to 100000")]
Attempts = Annotated[int, Meta(ge=1, le=10_000, description="a whole number from 1 to 10000")]
LateDays = Annotated[int, Meta(ge=0, le=MOST_LATE_DAYS, description=f"a whole number from 0 to {MOST_LATE_DAYS}")]
Dropped = Annotated[int, Meta(ge=0, le=len(UNITS) - 1, description=f"a whole number from 0 to {len(UNITS) - 1}")]
YesOrNo = Annotated[bool, Meta(description="true or false")]
Points = Annotated[dict[str, Number], Meta(description="a table of gaps and their points, 0 or more each")]
Line = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]+\Z", description="a line of text")]
Site = Annotated[str, Meta(pattern=r"^[\w.-]+\Z", description="the name of a site, as in jobs/sites")]
Language = Annotated[str, Meta(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]+)*\Z", description="a language such as en or de")]
Counts = Annotated[Literal[LAST, BEST, LAST_IN_TIME], Meta(description=f"{LAST!r}, {BEST!r} or {LAST_IN_TIME!r}")]


class RulesError(OneSentence, ValueError):
    """The reason why a course.toml is invalid."""


@dataclass(frozen=True)
class Lateness:
    """The cost of being late."""

    grace: Minutes = 0  # after a deadline, without cost
    per_day: Percent = 0  # lost for each day that has begun after the deadline
    most: Percent = 100  # largest loss


@dataclass(frozen=True)
class LatenessOfAll(Lateness):
    """The rules on lateness for all units, and the free days of each student."""

    days: LateDays = 0


@dataclass(frozen=True)
class UnitRules(Lateness):
    """The rules of one unit. Times are in UTC."""

    points: Number = None  # the points of the whole unit; None means the sum over its gaps
    gaps: Points = field(default_factory=dict)  # gaps whose points differ from their checks; with 0, a gap is ungraded
    groups: dict = field(default_factory=dict)  # name: students; instead of those of the course
    site: Site = None  # job scripts are checked for it; None means that of the first results, or the chosen one
    start: datetime | None = None
    due: datetime | None = None

    def days_late(self, handed_in, due):
        """Return how many days after `due` have begun, or 0 if it is in time, or if either time is unknown (None)."""
        if handed_in is None or due is None or handed_in <= due + timedelta(minutes=self.grace):
            return 0
        return math.ceil((handed_in - due) / DAY)

    def factors(self, worth):
        """Return how much a point of the checks is worth in the course: {(track, gap): a number}. worth: {(track, gap):
        the points of its checks}."""
        found = {
            (track, gap): self.gaps[gap] / points if gap in self.gaps and points else 1.0
            for (track, gap), points in worth.items()
        }
        if self.points is None:
            return found
        total = most((track, worth[track, gap] * factor) for (track, gap), factor in found.items())
        return {key: factor * self.points / total if total else 0.0 for key, factor in found.items()}

    def deduction(self, days):
        """Return the share of the points, from 0 to 1, that this many days cost."""
        return min(self.most, self.per_day * days) / 100


@dataclass(frozen=True)
class StudentRules:
    """The exceptions for one student."""

    late_days: LateDays = None
    extensions: dict = field(default_factory=dict)  # unit: datetime


@dataclass(frozen=True)
class Rules:
    """The content of a course.toml, with defaults for missing keys."""

    title: Line = "Hands-on distributed deep learning"
    site: Site = None
    language: Language = "en"
    zone: zoneinfo.ZoneInfo | None = None
    scale: AboveZero = None  # the grade for full points; with None, grades are points
    passing: Number = None  # the lowest passing grade
    counts: Counts = LAST
    attempts: Attempts = None  # how many count
    drop_lowest: Dropped = 0  # how many units with the lowest share of their points are no part of the grade
    bonus: Number = 0  # the most bonus points that a person may give a student
    pseudonyms: YesOrNo = False  # whether leaderboards show students pseudonyms
    late_days: int = 0  # free days of each student
    units: dict = field(default_factory=dict)
    students: dict = field(default_factory=dict)
    groups: dict = field(default_factory=dict)  # name: students
    unknown: tuple = ()  # sentences on names that are not in the gradebook: see `in_gradebook`

    def of(self, unit):
        return self.units.get(unit, UnitRules())

    def due(self, unit, student=None):
        """Return the deadline of a unit for this student, or None without one."""
        return self._of(student).extensions.get(unit, self.of(unit).due)

    def extended(self, unit, student):
        return unit in self._of(student).extensions

    def free_days(self, student):
        own = self._of(student).late_days
        return self.late_days if own is None else own

    def _of(self, student):
        return self.students.get(student, StudentRules())


NONE = Rules()


def read(path=None):
    """Return the Rules in the course.toml at `path`, by default that of this course; empty Rules if there is no file.
    Raises RulesError."""
    path = path or FILE
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return _rules(tomllib.loads(text))
    except FileNotFoundError:
        return NONE
    except OSError as error:
        raise RulesError(f"{path} can't be read ({error.strerror}): make it readable") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise RulesError(f"{path} is invalid: line {line} is not in UTF-8; save the file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise RulesError(f"{path} is invalid: {_in_line(str(error), text)}") from None
    except RecursionError:
        raise RulesError(f"{path} is invalid: it is nested too deeply") from None
    except ValueError as error:
        raise RulesError(f"{path} is invalid: {error}; docs/course.toml is an example with all keys") from None


def _in_line(error, text):
    """Return what is wrong with a TOML file, with the line itself, and the format of a date."""
    found = re.search(r"(.*) \(at line (\d+)", error)
    if not found:
        return f"{error}; docs/course.toml is an example with all keys"
    line = text.split("\n")[int(found[2]) - 1].strip()
    dates = re.search(r"\b(due|start|extensions)\b|\d[-./]\d", line)
    how = "a date is written 2026-11-20, a time 2026-11-20T18:00:00, both without quotes"
    return f"line {found[2]}, `{line:.100}`: {how if dates else f'{found[1]}; docs/course.toml is an example'}"


def at_its_site():
    """Return the Rules of this course. Raises RulesError if job scripts are checked for a site other than the
    course's."""
    rules = read()
    if rules.site not in (None, sites.chosen()):
        raise RulesError(
            f"{FILE.name} names the site {rules.site}, but the chosen one is {sites.chosen()}: run `python -m grader"
            " release`"
        )
    return rules


def of_students(rules, attempts, unit=None):
    """Return {student: (the group's name or "", their Submissions)} of all who handed in or are in a group that did. A
    group's attempts are those of its members, and of a submission with the group's name, numbered in the order of their
    times. unit: a unit that may have its own groups."""
    own = defaultdict(list)
    for attempt in attempts:
        own[attempt.student].append(attempt)
    found = {student: ("", tuple(of_student)) for student, of_student in own.items()}
    called = defaultdict(set)
    for student, of_student in own.items():
        called[student].add(student)
        called[of_student[-1].name].add(student)
    for group, members in (rules.of(unit).groups or rules.groups).items():
        as_group = called[group].difference(members)
        pool = sorted((attempt for student in (*members, *as_group) for attempt in own.get(student, ())), key=_when)
        pool = tuple(replace(attempt, attempt=number) for number, attempt in enumerate(pool, start=1))
        for student in as_group:
            del found[student]
        found |= {student: (group, pool) for student in members if pool}
    return found


def candidates(rules, unit, student, attempts, untouched=()):
    """Return the attempts that may count in a unit, in their order: (Submission, days late) pairs. The points decide
    among them. untouched: (student, digest, unit) of attempts with the unit's files as released; these count only if
    there are no others."""
    allowed = sorted(attempt.attempt for attempt in attempts)[: rules.attempts]
    taken = [attempt for attempt in attempts if attempt.attempt in allowed]
    taken = [one for one in taken if (one.student, one.digest, unit) not in untouched] or taken
    due, here, free = rules.due(unit, student), rules.of(unit), rules.free_days(student)
    dated = [
        (attempt, here.days_late(attempt.handed_in and datetime.fromisoformat(attempt.handed_in), due))
        for attempt in taken
    ]
    # the last attempt that is at most this late
    last = {days: [one for one in dated if one[1] <= days][-1:] for days in range(free + 1)}
    if rules.counts == BEST:
        return dated
    if rules.counts == LAST_IN_TIME:
        return [one for one in dated if [one] in last.values()] or dated[-1:]
    return [one for one in dated if [one] in last.values() or one[1] and here.deduction(one[1] - free) < 1] or dated[
        -1:
    ]


def to_grade(rules, attempts, units, untouched=()):
    """Return the attempts to grade, as (student, digest, unit): those that may count in a unit with points. untouched:
    as for `candidates`. Raises RulesError."""
    rules = in_gradebook(rules, attempts)
    return {
        (one.student, one.digest, unit)
        for unit in units
        if rules.of(unit).points != 0
        for student, (_, pool) in of_students(rules, attempts, unit).items()
        for one, _ in candidates(rules, unit, student, pool, untouched)
    }


def in_gradebook(rules, attempts):
    """Return the rules with the students' names in a gradebook.

    attempts: the Submissions in the gradebook. A name without its number means its student if no other student has it;
    a name with a number also matches one without, if the gradebook has no numbers. An unknown name is not an error,
    because its student may still submit. Raises RulesError if two names in course.toml mean the same student.
    """
    students = {attempt.student: attempt.name for attempt in attempts}
    called = defaultdict(dict)  # a name, or one with a number that Moodle assigned in any assignment -> students
    for attempt in attempts:
        for name in (students[attempt.student], f"{attempt.name}_{attempt.number}"):
            called[name.casefold()][attempt.student] = True
    all_groups = [rules.groups, *(unit.groups for unit in rules.units.values())]
    members = dict.fromkeys(one for groups in all_groups for group in groups.values() for one in group)
    names, sentences = {}, []
    for asked in rules.students | members:
        without_number = [
            student for student in called[re.sub(r"_[0-9]+$", "", asked).casefold()] if student == students[student]
        ]
        alike = list(called[asked.casefold()]) or without_number
        names[asked] = asked if asked in students or len(alike) != 1 else alike[0]
        if len(alike) > 1 and asked not in students:
            sentences.append(
                f"{FILE.name} names {asked!r}, who could be {' or '.join(map(repr, alike))}: write the name with its"
                " number."
            )
        elif names[asked] not in students:
            near = difflib.get_close_matches(
                asked, {*students, *students.values()} - rules.students.keys() - members.keys(), 1
            )
            if asked in members and not near:
                continue  # a member of a group need not submit
            sentences.append(
                f"{FILE.name} names {asked!r}, who has handed in"
                f" nothing{f'; did you mean {near[0]!r}?' if near else '.'}"
            )
    first = {}
    for asked, student in names.items():
        if first.setdefault(student, asked) != asked:
            raise RulesError(
                f"{FILE.name} has two names for one student, {first[student]!r} and {asked!r}: use one of them"
            )
    own = {names[student]: value for student, value in rules.students.items()}

    def renamed(groups):
        return {name: tuple(names[student] for student in group) for name, group in groups.items()}

    units = {unit: replace(here, groups=renamed(here.groups)) for unit, here in rules.units.items()}
    return replace(rules, students=own, groups=renamed(rules.groups), units=units, unknown=tuple(sentences))


def points_of(rules, unit):
    """Return the points of a unit in the course."""
    worth = _worth(unit)
    found = rules.of(unit).factors(worth)
    return most((track, worth[track, gap] * found[track, gap]) for track, gap in worth)


def total_of(rules):
    """Return the points of all units together."""
    return sum(points_of(rules, unit) for unit in UNITS)


def counting_units(rules):
    """Return the units that have points in the course."""
    return [unit for unit in UNITS if rules.of(unit).points != 0]


def by_checks(rules):
    """Return the points of the checks in all units that count."""
    return sum(map(most_points, counting_units(rules)))


def shown(moment, zone=None, end=True):
    """Return a UTC time for people, with its zone, such as "Friday, 20 November 2026, 18:00 (Europe/Berlin)"; midnight
    at the end of a day is 24:00."""
    there = moment.astimezone(zone or UTC)
    end_of_day = end and there.time() == time()
    day = there.date() - timedelta(days=1) if end_of_day else there.date()
    return f"{day:%A}, {day.day} {day:%B %Y}, {'24:00' if end_of_day else f'{there:%H:%M}'} ({zone or 'UTC'})"


def _when(attempt):
    return datetime.fromisoformat(attempt.handed_in).timestamp() if attempt.handed_in else attempt.time


def _worth(unit):
    """Return {(track, gap): the points of its checks}."""
    worth = {}
    for part in UNITS[unit]:
        for check in part.checks:
            key = part.track, name_of_gap(unit, part.file, check.gap)
            worth[key] = worth.get(key, 0) + sum(criterion.points for criterion in check.criteria)
    return worth


def _rules(values):
    known(values, KEYS)
    late, zone = table(values, "late"), _zone(values)
    of_all = _within("late", _made, LatenessOfAll, late)
    units, students = table(values, "units", tuple(UNITS)), table(values, "students")
    units = {
        unit: _within(f"units.{unit}", _unit, unit, table(units, unit), late, zone)
        for unit in UNITS
        if unit in units or late
    }
    students = {
        student: _within(f"students.{student}", _student, table(students, student), units, zone) for student in students
    }
    made = dict(zone=zone, late_days=of_all.days, units=units, students=students)
    made["groups"] = _within("groups", _groups, table(values, "groups"))
    own = {"passing" if key == "pass" else key: value for key, value in values.items() if key not in (*made, "late")}
    rules = _made(Rules, own | made)
    if rules.site is not None and rules.site not in sites.names():
        raise ValueError(f"site = {rules.site!r}, but the sites are {', '.join(sites.names())}")
    if rules.passing is not None and rules.passing > (rules.scale or total_of(rules)):
        raise ValueError(f"pass = {rules.passing:g}, but the highest grade is {rules.scale or total_of(rules):g}")
    return rules


def _made(kind, values):
    """Return the table `values` as a dataclass, `kind`. Raises ValueError with the allowed values of a key."""
    known(values, [one.name for one in fields(kind)])
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        key, words = wanted(error, kind)
        name = "pass" if key == "passing" else key
        raise ValueError(f"{name} = {values[key]!r}, but it must be {words}") from None


def _within(place, make, *values):
    """Return make(*values). The message of a ValueError gets the name of the table."""
    try:
        return make(*values)
    except ValueError as error:
        raise ValueError(f"[{place}]: {error}") from None


def _unit(unit, values, late, zone):
    worth = _worth(unit)
    known(table(values, "gaps"), tuple(dict.fromkeys(gap for _, gap in worth)))
    times = {"start": _time(values, "start", zone), "due": _time(values, "due", zone, end=True)}
    groups = {"groups": _within("groups", _groups, table(values, "groups"))}
    made = _made(UnitRules, {key: value for key, value in late.items() if key != "days"} | values | times | groups)
    if made.start and made.due and made.due <= made.start:
        raise ValueError(f"due, {shown(made.due, zone)}, is before start, {shown(made.start, zone, end=False)}")
    if made.site is not None and made.site not in sites.names():
        raise ValueError(f"site = {made.site!r}, but the sites are {', '.join(sites.names())}")
    if made.points and not any(made.factors(worth).values()):
        raise ValueError(f"points = {made.points:g}, but all of its gaps have 0")
    return made


def _student(values, units, zone):
    extensions = table(values, "extensions", tuple(UNITS))
    extensions = {unit: _time(extensions, unit, zone, end=True) for unit in extensions}
    made = _made(StudentRules, values | {"extensions": extensions})
    for unit, until in made.extensions.items():
        if unit not in units or units[unit].due is None:
            raise ValueError(
                f"there is an extension for {unit}, which has no deadline: give it one, `due` in [units.{unit}]"
            )
        if until <= units[unit].due:
            raise ValueError(
                f"the extension for {unit} until {shown(until, zone)} is not after its deadline,"
                f" {shown(units[unit].due, zone)}"
            )
    return made


def _groups(values):
    of_student = {}
    for name, members in values.items():
        if not isinstance(members, list) or not members or not all(isinstance(one, str) and one for one in members):
            raise ValueError(f"{name} = {members!r}, but it must be a list of students")
        for student in members:
            if (other := of_student.setdefault(student, name)) != name or members.count(student) > 1:
                raise ValueError(f"{student!r} is in {f'{other} and in {name}' if other != name else f'{name} twice'}")
    return {name: tuple(members) for name, members in values.items()}


def _zone(values):
    name = values.get("zone")
    if name is None:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, TypeError, OSError, zoneinfo.ZoneInfoNotFoundError):
        alike = difflib.get_close_matches(str(name), zoneinfo.available_timezones(), 1)
        raise ValueError(
            f"zone = {name!r}, but it must be a time zone such as"
            f" Europe/Berlin{f'; did you mean {alike[0]!r}?' if alike else ''}"
        ) from None


def _time(values, key, zone, end=False):
    """Return the time at a key, in UTC. A date without a time is its beginning, or its end. If clocks show the hour
    twice, the later time is returned."""
    value = values.get(key)
    if key not in values:
        return None
    if not isinstance(value, date):
        raise ValueError(
            f"{key} = {value!r}, but it must be a date or a date with a time, such as 2026-11-20T18:00:00, without"
            " quotes"
        )
    if not 1970 < value.year < 3000:
        raise ValueError(f"{key} = {value}, but no term is in the year {value.year}")
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC)
    if zone is None:
        raise ValueError(
            f'{key} = {value}, but in which time zone? Add a line such as zone = "Europe/Berlin" at the top'
        )
    if not isinstance(value, datetime):
        return datetime.combine(value + DAY if end else value, time(), zone).astimezone(UTC)
    there = value.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if there.astimezone(zone).replace(tzinfo=None) != value:
        raise ValueError(f"{key} = {value}, but clocks in {zone} skip this hour")
    return there
