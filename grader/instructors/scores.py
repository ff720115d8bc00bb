"""Scores: the points from checks and adjustments, added up for each student, and the resulting grades by the course's
rules. They are the basis of all reports."""

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

from grader.instructors.archives import lost
from grader.instructors.collect import Submission
from grader.instructors.gradebook import BONUS
from grader.instructors.rules import (
    BEST,
    LAST,
    NONE,
    Rules,
    by_checks,
    candidates,
    counting_units,
    in_gradebook,
    of_students,
    total_of,
)
from grader.judging import LOOK
from grader.verdict import PASSED, UNTOUCHED, Verdict, counted, most


@dataclass(frozen=True)
class Gap:
    """One gap of a unit, with its verdicts."""

    name: str
    verdicts: tuple
    adjustment: dict | None = None  # points, reason, author, time
    factor: float = 1.0  # the value of a point of the checks in the course

    @cached_property
    def track(self):
        return self.verdicts[0].track

    @cached_property
    def attempted(self):
        return any(verdict.status not in UNTOUCHED for verdict in self.verdicts)

    @cached_property
    def complete(self):
        """Return whether its points are final: there are none, a person set them, or no verdict is ungraded."""
        return (
            not self.max_points
            or self.adjustment is not None
            or all(verdict.points is not None for verdict in self.verdicts)
        )

    @cached_property
    def checked(self):
        """Return the points from the checks; an ungraded verdict adds nothing."""
        return sum(verdict.points or 0 for verdict in self.verdicts)

    @cached_property
    def points(self):
        return self.checked if self.adjustment is None else self.adjustment["points"]

    @cached_property
    def max_points(self):
        return sum(verdict.max_points for verdict in self.verdicts)

    @cached_property
    def plain(self):
        """Return whether all its checks passed, and nobody has changed its points, so there is nothing to report."""
        return self.adjustment is None and all(verdict.status == PASSED for verdict in self.verdicts)


@dataclass(frozen=True)
class Unit:
    """One unit of a student, with the attempt that counts in it."""

    name: str
    gaps: tuple  # the gaps that count: of one track, if there are two
    others: tuple = ()  # the gaps of the track that does not count
    adjustment: dict | None = None
    expected: float = 0.0  # the unit's largest points in the class, if this student has no result
    factor: float = 1.0  # the value of a point of the checks in the course
    attempt: Submission | None = None  # the one that counts; None without a submission for it
    due: datetime | None = None
    extended: bool = False  # whether `due` is this student's own
    days_late: int = 0
    free_days: int = 0  # number of late days without cost
    deduction: float = 0.0  # the share of the points, 0 to 1, that the remaining late days cost
    pending: bool = False  # whether another attempt that may count is ungraded
    ahead: bool = False  # whether its deadline is in the future
    outdated: bool = False  # whether a result that may count is by older checks
    group: str = ""  # the group that made the attempt
    replaced: tuple = ()  # the members of the group whose work does not count, because another member's does

    @cached_property
    def graded(self):
        return bool(self.gaps)

    @cached_property
    def untouched(self):
        """Return whether the student has not begun it, and nobody has set its points."""
        gaps = (*self.gaps, *self.others)
        begun = any(gap.attempted for gap in gaps) or any(one.adjustment for one in (self, *gaps))
        return (self.graded or self.attempt is None) and not begun

    @property
    def refused(self):
        """Return why the submission for it could not be read, if that counts and nobody has set its points."""
        return None if self.graded or self.adjustment or self.attempt is None else self.attempt.refused

    @property
    def waiting(self):
        """Return whether the unit is not part of the grade yet: it is not due, and the student has not begun it."""
        return self.ahead and self.untouched

    @cached_property
    def complete(self):
        if self.pending or self.attempt is None:
            return not self.pending
        return (
            self.adjustment is not None or (self.graded or not self.expected) and all(gap.complete for gap in self.gaps)
        )

    @cached_property
    def checked(self):
        return sum(gap.points for gap in self.gaps)

    @cached_property
    def points(self):
        return self.checked if self.adjustment is None else self.adjustment["points"]

    @cached_property
    def credit(self):
        """Return the points after the deduction for lateness."""
        return self.points * (1 - self.deduction)

    @cached_property
    def max_points(self):
        return sum(gap.max_points for gap in self.gaps) or self.expected

    @cached_property
    def verdicts(self):
        return [verdict for gap in self.gaps for verdict in gap.verdicts]

    @cached_property
    def begun(self):
        """Return the gaps of each track in which the student attempted any gap, whether or not it counts; the track of
        shared files is ""."""
        gaps = (*self.gaps, *self.others)
        tracks = {gap.track for gap in gaps if gap.attempted}
        return [gap for gap in gaps if gap.track in tracks]

    @cached_property
    def track(self):
        return next((gap.track for gap in self.gaps if gap.track), "")


@dataclass(frozen=True)
class Score:
    """One student's score. `points` is the sum so far, `grade` the result of the course's rules; they are final only if
    `complete`. A refused submission has only points that a person set."""

    submission: Submission  # the last one, or an earlier one that counts if the last is refused
    units: tuple = field(repr=False)
    adjustment: dict | None = None  # sets the whole grade
    # adjustments for submissions that do not count; they need a decision
    earlier: tuple = field(default=(), repr=False)
    rules: Rules = field(default=NONE, repr=False)
    bonus: dict | None = None  # bonus points, as an adjustment
    factor: float = 1.0  # the value of a point of the checks in the course
    group: str = ""
    attempts: tuple = field(default=(), repr=False)  # all Submissions of the student, or of the group
    expected: float = 0.0  # the points of the course, if nobody has a result in any unit
    so_far: bool = False  # whether a deadline of the student is in the future

    @cached_property
    def counting(self):
        """Return the units that are part of the grade now."""
        return tuple(unit for unit in self.units if not unit.waiting and unit not in self.dropped)

    @cached_property
    def dropped(self):
        """Return the units that are not part of the grade because the lowest are dropped; never the last one."""
        worth = [unit for unit in self.units if not unit.waiting and unit.max_points]
        lowest = sorted(worth, key=lambda unit: unit.credit / unit.max_points)
        return tuple(lowest[: min(self.rules.drop_lowest, len(worth) - 1)]) if worth else ()

    @property
    def student(self):
        return self.submission.student

    @property
    def handed_in(self):
        """Return the submission time in UTC, or None if it is unknown."""
        return self.submission.handed_in and datetime.fromisoformat(self.submission.handed_in)

    @property
    def refused(self):
        """Return why the submission, or the one that counts in a unit, could not be read, or None if a person has set
        points."""
        if self.submission.refused:
            return None if self.by_hand else self.submission.refused
        reasons = [unit.refused for unit in self.counting if unit.refused and unit.max_points]
        return reasons[0] if reasons and not self.adjustment else None

    @property
    def by_hand(self):
        """Return whether a person set the whole grade or a whole unit, which gives points to a refused submission."""
        return bool(self.adjustment) or any(unit.adjustment for unit in self.units)

    @property
    def adjusted(self):
        """Return whether a person set anything."""
        return self.by_hand or bool(self.bonus) or any(gap.adjustment for unit in self.units for gap in unit.gaps)

    @cached_property
    def complete(self):
        if self.adjustment:
            return True
        return bool(self.counting) and all(unit.complete for unit in self.counting)

    @cached_property
    def checked(self):
        return sum(unit.points for unit in self.units)

    @cached_property
    def points(self):
        return self.checked if self.adjustment is None else self.adjustment["points"]

    @cached_property
    def max_points(self):
        return sum(unit.max_points for unit in self.counting) if self.units else self.expected

    @cached_property
    def credit(self):
        """Return the points after deductions for lateness and with bonus points, at most `max_points`."""
        own = sum(unit.credit for unit in self.counting) if self.adjustment is None else self.adjustment["points"]
        return min(own + (self.bonus["points"] if self.bonus else 0), self.max_points)

    @property
    def grade(self):
        """Return the credit on the course's scale."""
        if self.rules.scale is None:
            return self.credit
        return round(self.rules.scale * self.credit / self.max_points, 2) if self.max_points else 0.0

    @property
    def max_grade(self):
        return self.max_points if self.rules.scale is None else self.rules.scale

    @property
    def highest(self):
        """Return the highest grade that the whole term can give."""
        dropped = sum(unit.max_points for unit in self.dropped)
        return self.rules.scale or sum(unit.max_points for unit in self.units) - dropped or self.expected

    @property
    def passed(self):
        """Return whether the grade passes, or None if the course has no passing grade, or the grade is not final."""
        final = self.rules.passing is not None and self.complete and not self.so_far
        return round(self.grade, 2) >= self.rules.passing if final else None

    @property
    def days_late(self):
        """Return the largest number of late days over all units, of the attempts that count."""
        return max((unit.days_late for unit in self.units), default=0)

    @property
    def late(self):
        """Return whether any attempt that counts is late: after a deadline of the course, or, without deadlines,
        according to the platform."""
        return self.days_late > 0 or self.submission.late and not any(unit.due for unit in self.units)

    @property
    def free_days(self):
        """Return the number of spent free days: for each deadline, the number in the unit that needs the most."""
        spent = defaultdict(int)
        for unit in self.units:
            spent[unit.due] = max(spent[unit.due], unit.free_days)
        return sum(spent.values())

    @property
    def flagged(self):
        """Return sentences on why a person should look at this score."""
        verdicts = [verdict for unit in self.units for verdict in unit.verdicts]
        reasons = (
            ["A file uses names that no solution needs."]
            if any(LOOK in verdict.message for verdict in verdicts)
            else []
        )
        if self.attempts and self.attempts[-1].refused and not self.submission.refused:
            reasons.append("The last attempt could not be read.")
        if outdated := [unit.name for unit in self.units if unit.outdated]:
            reasons.append(f"Results by an older version of the checks: {', '.join(outdated)}. `regrade` renews them.")
        for unit in (unit for unit in self.units if unit.replaced):
            reasons.append(
                f"In {unit.name}, the work of {unit.attempt.name} counts in place of {' and '.join(unit.replaced)}'s."
            )
        if not self.submission.refused:
            reasons += [f"Handed in and not read: {problem}" for problem in self.submission.problems if lost(problem)]
        if self.earlier:
            reasons.append("Points that were set by hand for another submission do not count.")
        if unknown := [
            unit.name for unit in self.units if unit.due and unit.attempt and unit.attempt.handed_in is None
        ]:
            reasons.append(
                f"It is not known when {', '.join(unknown)} {'was' if len(unknown) == 1 else 'were'} handed in, so"
                " nothing counts as late."
            )
        return tuple(reasons)


def clock():
    """Return the current time, which decides which deadlines are past."""
    return datetime.now(UTC)


def scores(book, order=(), rules=NONE, outdated=frozenset(), elsewhere=(), has_work=lambda submission, unit: False):
    """Return the Score of each student in a gradebook, sorted by student.

    order: the order of units; other units follow, sorted by name. outdated: (student, digest, unit) of the results by
    older checks; elsewhere: the same of submissions for other units; has_work: whether the files of a Submission for a
    unit differ from the released ones. Raises RulesError if the rules contradict the gradebook.
    """
    attempts = book.attempts()
    rules, untouched = in_gradebook(rules, attempts), book.untouched().union(elsewhere)
    of_class = _Class(rules, attempts, book.all_results(), book.adjustments(), untouched, outdated, has_work, clock())
    units = [unit for unit in order if unit in of_class.worth] + sorted(of_class.worth.keys() - set(order))
    return [of_class.score(student, units) for student in of_class.students]


@dataclass(frozen=True)
class _Class:
    """The source of a class's Scores: the gradebook's content, and the arguments of `scores`."""

    rules: Rules
    attempts: list
    results: dict
    adjustments: dict
    untouched: set
    outdated: set
    has_work: object
    now: datetime

    @cached_property
    def pools(self):
        """Return {unit: the result of `of_students`} of the units that have results; "": for the whole grade."""
        units = sorted({unit for _, _, unit in self.results})
        return {unit: of_students(self.rules, self.attempts, unit) for unit in ("", *units)}

    @cached_property
    def students(self):
        as_groups = {one for pools in self.pools.values() for one in self.pools[""].keys() - pools.keys()}
        return sorted({student for pools in self.pools.values() for student in pools} - as_groups)

    def pool(self, student, unit=""):
        """Return (the group's name or "", the Submissions) of a student in a unit, or in the whole term."""
        if student in self.pools[unit]:
            return self.pools[unit][student]
        elsewhere = next(pools[student][1] for pools in self.pools.values() if student in pools)
        return "", () if unit else elsewhere

    @cached_property
    def options(self):
        """Return {(student, unit): the Units of the attempts that may count}."""
        return {
            (student, unit): self._options(student, unit) for student in self.students for unit in self.pools if unit
        }

    def _options(self, student, unit):
        group, pool = self.pool(student, unit)
        dated = candidates(self.rules, unit, student, pool, self.untouched) if pool else [(None, 0)]
        return [_unit(self.rules, unit, (student, group), *one, self.results, self.adjustments) for one in dated]

    @cached_property
    def worth(self):
        return _worth(self.options)

    @cached_property
    def _points(self):
        """Return {unit: its largest points, in the checks and in the course}."""
        return {
            unit: max(_points(self.rules, unit, found) for (_, _, of), found in self.results.items() if of == unit)
            for unit in self.worth
        }

    @cached_property
    def factors(self):
        """Return {unit: the value of a point of the checks in the course}; "": for the whole grade."""
        total = tuple(map(sum, zip(*self._points.values(), strict=True))) if self._points else _of_course(self.rules)
        return {unit: _ratio(*pair) for unit, pair in self._points.items()} | {"": _ratio(*total)}

    def by_hand(self, student, unit, attempt):
        group, _ = self.pool(student, unit)
        return _by_hand(self.adjustments, (student, group), unit, "", attempt, self.factors[unit])

    def score(self, student, units):
        """Return the Score of a student with these units."""
        rules, (group, pool) = self.rules, self.pool(student)
        found = _counting(rules, [self._weighed(student, unit) for unit in units], rules.free_days(student))
        found = tuple(
            replace(one, replaced=_replaced(one, self.pool(student, one.name)[1], self.untouched, self.has_work))
            if one.group
            else one
            for one in found
        )
        bonus = next((row for owner in (student, group) if (row := self.adjustments.get((owner, BONUS, "")))), None)
        return Score(
            _shown(student, pool, found),
            found,
            self.by_hand(student, "", pool[-1]),
            tuple(_earlier(self.adjustments, (student, group), found, pool[-1], self.factors)),
            rules,
            _bonus(bonus, rules.bonus),
            self.factors[""],
            group,
            pool,
            0.0 if self._points else total_of(rules),
            any((due := rules.due(unit, student)) and due > self.now for unit in counting_units(rules)),
        )

    def _weighed(self, student, unit):
        """Return the options of a student in a unit, with the values of the class."""
        options = self.options[student, unit]
        keys = {(one.attempt.student, one.attempt.digest, unit) for one in options if one.attempt}
        return [
            replace(
                one,
                expected=0.0 if one.graded else self.worth[unit],
                adjustment=self.by_hand(student, unit, one.attempt),
                factor=self.factors[unit],
                ahead=one.due is not None and one.due > self.now,
                outdated=bool(keys & self.outdated),
            )
            for one in options
        ]


def _of_course(rules):
    """Return the largest points of the course, in the checks and in its rules."""
    return by_checks(rules), total_of(rules)


def _replaced(unit, pool, untouched, has_work):
    """Return the names of the members of a group who have submitted other work on a unit than the one that counts."""
    counts = unit.attempt
    others = [one for one in pool if one.student != counts.student and one.digest not in ("", counts.digest)]
    others = [one for one in others if (one.student, one.digest, unit.name) not in untouched]
    return tuple(dict.fromkeys(one.name for one in others if has_work(one, unit.name)))


def _shown(student, pool, units):
    """Return the Submission that a student's pages show: the last one, or the last one that counts if the last is
    refused."""
    counting = [unit.attempt for unit in units if unit.graded]
    shown = max(counting, key=pool.index) if pool[-1].refused and counting else pool[-1]
    if shown.student == student:
        return shown
    own = [attempt for attempt in pool if attempt.student == student]
    named = re.fullmatch(r"(?P<name>.+)_(?P<number>[0-9]+)", student)
    who = (
        {"name": own[-1].name, "number": own[-1].number}
        if own
        else named.groupdict()
        if named
        else {"name": student, "number": ""}
    )
    return replace(shown, student=student, **who)


def _ratio(by_checks, in_course):
    return in_course / by_checks if by_checks else 1.0


def _worth(options):
    """Return {unit: its largest points in the class} of the units in which anybody has a result that may count."""
    worth = {}
    for (_, unit), units in options.items():
        for one in units:
            if one.graded:
                worth[unit] = max(worth.get(unit, 0), one.max_points)
    return worth


def _points(rules, unit, verdicts):
    """Return the largest points that verdicts on a unit can give: in the checks, and in the course."""
    worth = _of_gaps(verdicts)
    factor = rules.of(unit).factors(worth)
    return most((track, worth[track, gap]) for track, gap in worth), most(
        (track, worth[track, gap] * factor[track, gap]) for track, gap in worth
    )


def _of_gaps(verdicts):
    """Return {(track, gap): the points of its checks}."""
    worth = defaultdict(float)
    for verdict in verdicts:
        worth[verdict.track, verdict.gap] += verdict.max_points
    return worth


def _unit(rules, unit, whose, attempt, days, results, adjustments):
    """Return the Unit of one attempt. whose: the student and the name of the group."""
    verdicts = results.get((attempt.student, attempt.digest, unit), ()) if attempt else ()
    by_track = {}
    for verdict in verdicts:
        by_track.setdefault((verdict.track, verdict.gap), []).append(verdict)
    factor = rules.of(unit).factors(_of_gaps(verdicts))
    gaps = {}
    for key, of_gap in by_track.items():
        adjustment = _by_hand(adjustments, whose, unit, key[1], attempt, factor[key])
        gaps[key] = Gap(key[1], tuple(_weighed(verdict, factor[key]) for verdict in of_gap), adjustment, factor[key])
    by_hand = [
        Verdict(unit, track, name, "adjusted", "adjusted", gap.points - gap.checked, 0.0)
        for (track, name), gap in gaps.items()
        if gap.adjustment
    ]
    counting = {
        verdict.track for verdict in counted([verdict for gap in gaps.values() for verdict in gap.verdicts] + by_hand)
    }
    return Unit(
        unit,
        tuple(gap for (track, _), gap in gaps.items() if track in counting),
        tuple(gap for (track, _), gap in gaps.items() if track not in counting),
        attempt=attempt,
        due=rules.due(unit, whose[0]),
        extended=rules.extended(unit, whose[0]),
        days_late=days,
        group=whose[1],
    )


def _weighed(verdict, factor):
    """Return a verdict with its points in the course."""
    if factor == 1:
        return verdict
    return replace(
        verdict,
        points=None if verdict.points is None else verdict.points * factor,
        max_points=verdict.max_points * factor,
    )


def _by_hand(adjustments, whose, unit, gap, attempt, factor):
    """Return the adjustment for this attempt, of the student or else of the group, in points of the course; None if
    there is none."""
    for owner in filter(None, whose):
        row = adjustments.get((owner, unit, gap))
        if row and attempt and row["digest"] == attempt.digest:
            return _in_course(row, factor)
    return None


def _earlier(adjustments, whose, units, last, factors):
    """Return the adjustments for submissions that do not count."""
    units = {unit.name: unit for unit in units}
    for (owner, name, gap), row in adjustments.items():
        if owner in whose and name != BONUS:
            unit = units.get(name)
            if row["digest"] != (unit and unit.attempt or last).digest:
                of_gap = [one.factor for one in (*unit.gaps, *unit.others) if one.name == gap] if unit else []
                yield _in_course(row, of_gap[0] if of_gap else factors.get(name, 1.0))


def _bonus(row, most):
    """Return a student's bonus points, within the course's limit."""
    return row | {"points": min(row["points"], most)} if row and most else None


def _in_course(row, factor):
    """Return an adjustment with its points in the course."""
    return row | {"points": row["points"] * factor, "by_checks": row["points"]}


def _counting(rules, options, days):
    """Return the option that counts in each unit, with its deduction. `days` free days are spent to maximise the sum of
    points. Days that are spent on a deadline are free in all units with this deadline, because a student who submits
    all of them a day late is one day late."""
    if not days or not any(one.days_late for units in options for one in units):
        return tuple(_best(rules, units, 0) for units in options)
    together = defaultdict(list)  # a deadline, or for a unit without one its index -> the indices of units
    for place, units in enumerate(options):
        together[units[0].due or place].append(place)
    plans = {0: (0.0, {})}  # days spent: (points, the choices so far by index)
    for places in together.values():
        choices = [[_best(rules, options[place], free) for place in places] for free in range(days + 1)]
        longer = {}
        for spent, (points, chosen) in plans.items():
            for some in choices[: days - spent + 1]:
                key, sum_of = spent + max(one.free_days for one in some), points + sum(one.credit for one in some)
                if key not in longer or sum_of > longer[key][0]:
                    longer[key] = sum_of, chosen | dict(zip(places, some, strict=True))
        plans = longer
    chosen = max(plans.items(), key=lambda plan: (round(plan[1][0], 6), -plan[0]))[1][1]
    return tuple(chosen[place] for place in range(len(options)))


def _best(rules, options, free):
    """Return the option of a unit that counts, if the first `free` late days cost nothing."""
    in_time = [one for one in options if one.days_late <= free]
    if rules.counts == BEST:
        picked = options
    elif rules.counts == LAST:
        picked = in_time[-1:] + [one for one in options if one.days_late > free]
    else:
        picked = in_time[-1:] or options[-1:]
    charged = [
        replace(
            one,
            free_days=min(free, one.days_late),
            deduction=rules.of(one.name).deduction(max(0, one.days_late - free)),
        )
        for one in picked
    ]
    best = max(enumerate(charged), key=lambda place: (place[1].credit, place[1].days_late <= free, place[0]))[1]
    return replace(
        best, pending=any(not one.complete and not one.attempt.refused for one in charged if one is not best)
    )
