"""Scores: the points from checks and adjustments, added up for each student. All reports are made from them."""

from dataclasses import dataclass, field
from functools import cached_property

from grader.instructors.collect import Submission
from grader.verdict import UNTOUCHED, Verdict, counted


@dataclass(frozen=True)
class Gap:
    """One gap of a unit, with the verdicts on it."""

    name: str
    verdicts: tuple
    adjustment: dict | None = None  # points, reason, author, time

    @property
    def track(self):
        return self.verdicts[0].track

    @property
    def attempted(self):
        return any(verdict.status not in UNTOUCHED for verdict in self.verdicts)

    @property
    def complete(self):
        """Whether its points are final: they were set by hand, or no verdict is ungraded."""
        return self.adjustment is not None or all(verdict.points is not None for verdict in self.verdicts)

    @property
    def checked(self):
        """The points that the checks gave; an ungraded verdict adds nothing."""
        return sum(verdict.points or 0 for verdict in self.verdicts)

    @property
    def points(self):
        return self.checked if self.adjustment is None else self.adjustment["points"]

    @property
    def max_points(self):
        return sum(verdict.max_points for verdict in self.verdicts)


@dataclass(frozen=True)
class Unit:
    """One task of a student."""

    name: str
    gaps: tuple  # the gaps that count: of two tracks, those of one
    others: tuple = ()  # the gaps of the track that does not count
    adjustment: dict | None = None
    expected: float = 0.0  # the most points of this unit in the class, if this student has no result

    @property
    def graded(self):
        return bool(self.gaps)

    @property
    def complete(self):
        return self.adjustment is not None or self.graded and all(gap.complete for gap in self.gaps)

    @property
    def checked(self):
        return sum(gap.points for gap in self.gaps)

    @property
    def points(self):
        return self.checked if self.adjustment is None else self.adjustment["points"]

    @property
    def max_points(self):
        return sum(gap.max_points for gap in self.gaps) or self.expected

    @property
    def verdicts(self):
        return [verdict for gap in self.gaps for verdict in gap.verdicts]

    @property
    def begun(self):
        """The gaps of each track in which the student attempted any gap, whether it counts or not; "", for shared files, is a track here."""
        gaps = (*self.gaps, *self.others)
        tracks = {gap.track for gap in gaps if gap.attempted}
        return [gap for gap in gaps if gap.track in tracks]

    @property
    def track(self):
        return next((gap.track for gap in self.gaps if gap.track), "")


@dataclass(frozen=True)
class Score:
    """One student's score. `points` is the sum so far; it is the grade only if `complete`. A refused submission has only points that were
    set by hand."""

    submission: Submission
    units: tuple = field(repr=False)
    adjustment: dict | None = None  # of the whole grade
    earlier: tuple = field(default=(), repr=False)  # adjustments made for an earlier submission, which wait for a decision

    @property
    def student(self):
        return self.submission.student

    @property
    def by_hand(self):
        """Whether the whole grade or a whole unit was set by hand: what a refused submission has points for."""
        return bool(self.adjustment) or any(unit.adjustment for unit in self.units)

    @cached_property
    def complete(self):
        if self.adjustment:
            return True
        return all(unit.complete for unit in self.units) and (self.submission.refused is None or bool(self.units))

    @cached_property
    def checked(self):
        return sum(unit.points for unit in self.units)

    @cached_property
    def points(self):
        return self.checked if self.adjustment is None else self.adjustment["points"]

    @cached_property
    def max_points(self):
        return sum(unit.max_points for unit in self.units)


def scores(book, order=()):
    """The Score of each student in a gradebook, sorted by student. Units are in the order of `order`; other units follow, sorted by name."""
    results, adjustments, earlier = book.results(), book.adjustments(), book.earlier_adjustments().values()
    graded = {key: _unit(*key, verdicts, adjustments) for key, verdicts in results.items()}
    names = sorted({unit for _, unit in graded}, key=lambda unit: (list(order).index(unit) if unit in order else len(order), unit))
    expected = {name: max(unit.max_points for (_, of), unit in graded.items() if of == name) for name in names}
    return [
        Score(
            one,
            tuple(graded.get((one.student, name)) or Unit(name, (), (), adjustments.get((one.student, name, "")), expected[name]) for name in names),
            adjustments.get((one.student, "", "")),
            tuple(row for row in earlier if row["student"] == one.student),
        )
        for one in book.submissions()
    ]


def _unit(student, unit, verdicts, adjustments):
    gaps = {}
    for verdict in verdicts:
        gaps.setdefault((verdict.track, verdict.gap), []).append(verdict)
    gaps = {key: Gap(key[1], tuple(of_gap), adjustments.get((student, unit, key[1]))) for key, of_gap in gaps.items()}
    by_hand = [
        Verdict(unit, track, name, "adjusted", "adjusted", gap.points - gap.checked, 0.0) for (track, name), gap in gaps.items() if gap.adjustment
    ]
    counting = {verdict.track for verdict in counted(verdicts + by_hand)}
    return Unit(
        unit,
        tuple(gap for (track, _), gap in gaps.items() if track in counting),
        tuple(gap for (track, _), gap in gaps.items() if track not in counting),
        adjustments.get((student, unit, "")),
    )
