"""Scores: the points from checks and adjustments, added up for each student, and the grades that the course's rules
make of them. All reports are made from them."""

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
    """One gap of a unit, with the verdicts on it."""

    name: str
    verdicts: tuple
    adjustment: dict | None = None  # points, reason, author, time
    factor: float = 1.0  # what a point of the checks is worth in the course

    @cached_property
    def track(self):
        return self.verdicts[0].track

    @cached_property
    def attempted(self):
        return any(verdict.status not in UNTOUCHED for verdict in self.verdicts)

    @cached_property
    def complete(self):
        """Whether its points are final: it has none, they were set by hand, or no verdict is ungraded."""
        return (
            not self.max_points
            or self.adjustment is not None
            or all(verdict.points is not None for verdict in self.verdicts)
        )

    @cached_property
    def checked(self):
        """The points that the checks gave; an ungraded verdict adds nothing."""
        return sum(verdict.points or 0 for verdict in self.verdicts)

    @cached_property
    def points(self):
        return self.checked if self.adjustment is None else self.adjustment["points"]

    @cached_property
    def max_points(self):
        return sum(verdict.max_points for verdict in self.verdicts)

    @cached_property
    def plain(self):
        """Whether all its checks passed, and nobody has changed its points: there is nothing to say about it."""
        return self.adjustment is None and all(verdict.status == PASSED for verdict in self.verdicts)


@dataclass(frozen=True)
class Unit:
    """One task of a student: of the attempt that counts in it."""

    name: str
    gaps: tuple  # the gaps that count: of two tracks, those of one
    others: tuple = ()  # the gaps of the track that does not count
    adjustment: dict | None = None
    expected: float = 0.0  # the most points of this unit in the class, if this student has no result
    factor: float = 1.0  # what a point of the checks is worth in the course
    attempt: Submission | None = None  # the one that counts; None if the student has handed in nothing for it
    due: datetime | None = None
    extended: bool = False  # whether `due` is this student's own
    days_late: int = 0
    free_days: int = 0  # how many of them cost nothing
    deduction: float = 0.0  # the share of the points, 0 to 1, that the remaining days cost
    pending: bool = False  # whether another attempt that may count is not graded yet
    ahead: bool = False  # whether its deadline is still to come
    outdated: bool = False  # whether a result that may count is by an older version of the checks
    group: str = ""  # whose attempt it is
    replaced: tuple = ()  # the names of members of the group whose work does not count, as another one's does

    @cached_property
    def graded(self):
        return bool(self.gaps)

    @cached_property
    def untouched(self):
        """Whether the student has not begun it, and nobody has set anything by hand."""
        gaps = (*self.gaps, *self.others)
        begun = any(gap.attempted for gap in gaps) or any(one.adjustment for one in (self, *gaps))
        return (self.graded or self.attempt is None) and not begun

    @property
    def refused(self):
        """Why what was handed in for it could not be read, if that counts and nobody has set anything by hand."""
        return None if self.graded or self.adjustment or self.attempt is None else self.attempt.refused

    @property
    def waiting(self):
        """Whether the unit is no part of the grade yet: it is not due, and the student has not begun it."""
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
        """The points that are left after the deduction for lateness."""
        return self.points * (1 - self.deduction)

    @cached_property
    def max_points(self):
        return sum(gap.max_points for gap in self.gaps) or self.expected

    @cached_property
    def verdicts(self):
        return [verdict for gap in self.gaps for verdict in gap.verdicts]

    @cached_property
    def begun(self):
        """The gaps of each track in which the student attempted any gap, whether it counts or not; "", for shared
        files, is a track here."""
        gaps = (*self.gaps, *self.others)
        tracks = {gap.track for gap in gaps if gap.attempted}
        return [gap for gap in gaps if gap.track in tracks]

    @cached_property
    def track(self):
        return next((gap.track for gap in self.gaps if gap.track), "")


@dataclass(frozen=True)
class Score:
    """One student's score. `points` is the sum so far, `grade` what the course's rules make of it; they are final only
    if `complete`. A refused submission has only points that were set by hand."""

    submission: Submission  # the last one; if it is refused and an earlier one counts, that one
    units: tuple = field(repr=False)
    adjustment: dict | None = None  # of the whole grade
    # adjustments made for submissions that do not count; they wait for a decision
    earlier: tuple = field(default=(), repr=False)
    rules: Rules = field(default=NONE, repr=False)
    bonus: dict | None = None  # bonus points, as an adjustment
    factor: float = 1.0  # what a point of the checks is worth in the course
    group: str = ""
    attempts: tuple = field(default=(), repr=False)  # all Submissions of the student, or of the group
    expected: float = 0.0  # the points of the course, if nobody has a result in any unit
    so_far: bool = False  # whether a deadline of the student is still to come

    @cached_property
    def counting(self):
        """The units that are part of the grade now."""
        return tuple(unit for unit in self.units if not unit.waiting and unit not in self.dropped)

    @cached_property
    def dropped(self):
        """The units that are no part of the grade, since the lowest are dropped; never the last one."""
        worth = [unit for unit in self.units if not unit.waiting and unit.max_points]
        lowest = sorted(worth, key=lambda unit: unit.credit / unit.max_points)
        return tuple(lowest[: min(self.rules.drop_lowest, len(worth) - 1)]) if worth else ()

    @property
    def student(self):
        return self.submission.student

    @property
    def handed_in(self):
        """When, in UTC; None if that is not known."""
        return self.submission.handed_in and datetime.fromisoformat(self.submission.handed_in)

    @property
    def refused(self):
        """Why the submission, or the one that counts in a unit, could not be read; None if a person has set points."""
        if self.submission.refused:
            return None if self.by_hand else self.submission.refused
        reasons = [unit.refused for unit in self.counting if unit.refused and unit.max_points]
        return reasons[0] if reasons and not self.adjustment else None

    @property
    def by_hand(self):
        """Whether the whole grade or a whole unit was set by hand: what a refused submission has points for."""
        return bool(self.adjustment) or any(unit.adjustment for unit in self.units)

    @property
    def adjusted(self):
        """Whether anything was set by hand."""
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
        """The points after deductions for lateness and with bonus points, never more than `max_points`."""
        own = sum(unit.credit for unit in self.counting) if self.adjustment is None else self.adjustment["points"]
        return min(own + (self.bonus["points"] if self.bonus else 0), self.max_points)

    @property
    def grade(self):
        """The credit on the course's scale."""
        if self.rules.scale is None:
            return self.credit
        return round(self.rules.scale * self.credit / self.max_points, 2) if self.max_points else 0.0

    @property
    def max_grade(self):
        return self.max_points if self.rules.scale is None else self.rules.scale

    @property
    def highest(self):
        """The highest grade that the whole term can give."""
        dropped = sum(unit.max_points for unit in self.dropped)
        return self.rules.scale or sum(unit.max_points for unit in self.units) - dropped or self.expected

    @property
    def passed(self):
        """Whether the grade passes; None if the course has no such grade, or the grade is not final."""
        final = self.rules.passing is not None and self.complete and not self.so_far
        return round(self.grade, 2) >= self.rules.passing if final else None

    @property
    def days_late(self):
        """How late the attempts are that count, in days: the most of all units."""
        return max((unit.days_late for unit in self.units), default=0)

    @property
    def late(self):
        """Whether anything that counts is late: after a deadline of the course, or without these, according to the
        platform."""
        return self.days_late > 0 or self.submission.late and not any(unit.due for unit in self.units)

    @property
    def free_days(self):
        """How many free days are spent: of each deadline as many as in the unit that needs the most."""
        spent = defaultdict(int)
        for unit in self.units:
            spent[unit.due] = max(spent[unit.due], unit.free_days)
        return sum(spent.values())

    @property
    def flagged(self):
        """Why a person should look at this score: sentences."""
        verdicts = [verdict for unit in self.units for verdict in unit.verdicts]
        reasons = (
            ["A file mentions what is outside of the gaps."]
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
    """The time by which deadlines are past or still to come."""
    return datetime.now(UTC)


def scores(book, order=(), rules=NONE, outdated=frozenset(), elsewhere=(), has_work=lambda submission, unit: False):
    """The Score of each student in a gradebook, sorted by student. Units are in the order of `order`; other units
    follow, sorted by name. outdated: (student, digest, unit) of the results by an older version of the checks;
    elsewhere: the same of what was handed in for other units; has_work: whether the files of a Submission for a unit
    are others than those given out. Raises RulesError if the rules contradict the gradebook."""
    attempts = book.attempts()
    rules, untouched = in_gradebook(rules, attempts), book.untouched().union(elsewhere)
    of_class = _Class(rules, attempts, book.all_results(), book.adjustments(), untouched, outdated, has_work, clock())
    units = [unit for unit in order if unit in of_class.worth] + sorted(of_class.worth.keys() - set(order))
    return [of_class.score(student, units) for student in of_class.students]


@dataclass(frozen=True)
class _Class:
    """What the Scores of a class are made of: the gradebook's contents, and what `scores` gets."""

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
        """{unit: what `of_students` returns for it} of the units that have results; "": for the whole grade."""
        units = sorted({unit for _, _, unit in self.results})
        return {unit: of_students(self.rules, self.attempts, unit) for unit in ("", *units)}

    @cached_property
    def students(self):
        as_groups = {one for pools in self.pools.values() for one in self.pools[""].keys() - pools.keys()}
        return sorted({student for pools in self.pools.values() for student in pools} - as_groups)

    def pool(self, student, unit=""):
        """(the group's name or "", the Submissions) of a student in a unit, or in the whole term."""
        if student in self.pools[unit]:
            return self.pools[unit][student]
        elsewhere = next(pools[student][1] for pools in self.pools.values() if student in pools)
        return "", () if unit else elsewhere

    @cached_property
    def options(self):
        """{(student, unit): the Units of the attempts that may count}."""
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
        """{unit: its most points, by the checks and in the course}."""
        return {
            unit: max(_points(self.rules, unit, found) for (_, _, of), found in self.results.items() if of == unit)
            for unit in self.worth
        }

    @cached_property
    def factors(self):
        """{unit: what a point of the checks is worth in the course}; "": of the whole grade."""
        total = tuple(map(sum, zip(*self._points.values(), strict=True))) if self._points else _of_course(self.rules)
        return {unit: _ratio(*pair) for unit, pair in self._points.items()} | {"": _ratio(*total)}

    def by_hand(self, student, unit, attempt):
        group, _ = self.pool(student, unit)
        return _by_hand(self.adjustments, (student, group), unit, "", attempt, self.factors[unit])

    def score(self, student, units):
        """The Score of a student, with these units."""
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
        """The options of a student in a unit, with what holds for the class."""
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
    """The most points of the course, by the checks and by its rules."""
    return by_checks(rules), total_of(rules)


def _replaced(unit, pool, untouched, has_work):
    """The names of the members of a group who have handed in other work on a unit than what counts."""
    counts = unit.attempt
    others = [one for one in pool if one.student != counts.student and one.digest not in ("", counts.digest)]
    others = [one for one in others if (one.student, one.digest, unit.name) not in untouched]
    return tuple(dict.fromkeys(one.name for one in others if has_work(one, unit.name)))


def _shown(student, pool, units):
    """The Submission that a student's pages are about: the last one, or if it is refused and earlier ones count, the
    last of these."""
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
    """{unit: the most points of it in the class} of the units in which anybody has a result that may count."""
    worth = {}
    for (_, unit), units in options.items():
        for one in units:
            if one.graded:
                worth[unit] = max(worth.get(unit, 0), one.max_points)
    return worth


def _points(rules, unit, verdicts):
    """The most points that verdicts on a unit can give: by the checks, and in the course."""
    worth = _of_gaps(verdicts)
    factor = rules.of(unit).factors(worth)
    return most((track, worth[track, gap]) for track, gap in worth), most(
        (track, worth[track, gap] * factor[track, gap]) for track, gap in worth
    )


def _of_gaps(verdicts):
    """{(track, gap): the points of its checks}."""
    worth = defaultdict(float)
    for verdict in verdicts:
        worth[verdict.track, verdict.gap] += verdict.max_points
    return worth


def _unit(rules, unit, whose, attempt, days, results, adjustments):
    """The Unit of one attempt. whose: the student and the name of the group."""
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
    """A verdict with the points that it has in the course."""
    if factor == 1:
        return verdict
    return replace(
        verdict,
        points=None if verdict.points is None else verdict.points * factor,
        max_points=verdict.max_points * factor,
    )


def _by_hand(adjustments, whose, unit, gap, attempt, factor):
    """What was set by hand for this attempt, for the student or else for the group, in the points of the course; None
    if nothing was."""
    for owner in filter(None, whose):
        row = adjustments.get((owner, unit, gap))
        if row and attempt and row["digest"] == attempt.digest:
            return _in_course(row, factor)
    return None


def _earlier(adjustments, whose, units, last, factors):
    """What was set by hand for submissions that do not count."""
    units = {unit.name: unit for unit in units}
    for (owner, name, gap), row in adjustments.items():
        if owner in whose and name != BONUS:
            unit = units.get(name)
            if row["digest"] != (unit and unit.attempt or last).digest:
                of_gap = [one.factor for one in (*unit.gaps, *unit.others) if one.name == gap] if unit else []
                yield _in_course(row, of_gap[0] if of_gap else factors.get(name, 1.0))


def _bonus(row, most):
    """A student's bonus points, as far as the course has any."""
    return row | {"points": min(row["points"], most)} if row and most else None


def _in_course(row, factor):
    """An adjustment with the points that it has in the course."""
    return row | {"points": row["points"] * factor, "by_checks": row["points"]}


def _counting(rules, options, days):
    """Of each unit's options the one that counts, with its deduction. `days` free days are spent so that the sum of
    points is the largest. What is spent on a deadline is free in all units that have it: who hands in all of them a day
    late is one day late."""
    if not days or not any(one.days_late for units in options for one in units):
        return tuple(_best(rules, units, 0) for units in options)
    together = defaultdict(list)  # a deadline, or of a unit without one its place -> the places of units
    for place, units in enumerate(options):
        together[units[0].due or place].append(place)
    plans = {0: (0.0, {})}  # days spent: (points, the choices so far by place)
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
    """The option of a unit that counts, if the first `free` days late cost nothing."""
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
