"""The units of the course, found by the names of their folders.

What students work on in the unit `topic` is in solutions/NN_topic; its checks are in grader/units/topic.
"""

import functools
import importlib
import re
from dataclasses import dataclass
from pathlib import Path

from grader import exercises
from grader.probes import needs_frameworks
from grader.verdict import most
from handson import frameworks

TRACKS = ("pytorch", "chainer")
NOTEBOOK = "notebook"  # how unit.py names the unit's notebook; "notebook_b" is its second one, NNb_topic
NAMED_NOTEBOOK = re.compile(rf"{NOTEBOOK}(?:_([b-z]))?")


@dataclass(frozen=True)
class Part:
    """One file of a unit: its path below the course's folder, its track ("" if students of both tracks work on it), and
    the checks of its gaps."""

    file: str
    track: str
    checks: tuple

    @property
    def folder(self):
        """The track in whose folder the file is, or "": by it, its hidden cases and known answers are named."""
        return next((track for track in TRACKS if f"/{track}/" in self.file), "")


def _found():
    """{topic: the unit's Parts}, in the order of the units' numbers."""
    units = {}
    for folder in exercises.folders():
        topic = folder.split("_", 1)[1]
        if (Path(__file__).parent / "units" / topic).is_dir():
            checks = importlib.import_module(f"grader.units.{topic}.unit").CHECKS
            units[topic] = tuple(_part(folder, name, checks) for name in checks)
    return units


def _part(folder, name, checks):
    """The Part of one of the files in `checks`. A script is its track's if the other track has one of this name; else
    it is everybody's."""
    notebook = NAMED_NOTEBOOK.fullmatch(name)
    file = f"notebooks/{folder[:2]}{notebook[1] or ''}{folder[2:]}.ipynb" if notebook else f"exercises/{folder}/{name}"
    track, _, script = name.partition("/")
    in_both = all(f"{one}/{script}" in checks for one in TRACKS)
    return Part(file, track if in_both else "", checks[name])


UNITS = _found()


def uses_frameworks(unit):
    """Whether a unit has scripts for packages of the second environment."""
    return any(needs_frameworks(part.file) for part in UNITS[unit])


@functools.cache
def has_contest(unit):
    """Whether a unit declares a contest, so that it has a leaderboard."""
    return any(check.contest for part in UNITS[unit] for check in part.checks)


def ready():
    """The names of the units that can be checked here. Where the second environment is missing, those that need it
    can't."""
    there = frameworks.why_not() is None
    return [unit for unit in UNITS if there or not uses_frameworks(unit)]


@functools.cache
def name_of_gap(unit, file, gap):
    """How verdicts, reports and commands name a gap of a unit's file: `file:gap` where a file of another name has a gap
    of this name, too."""
    files = {Path(part.file).name for part in UNITS[unit] for check in part.checks if check.gap == gap}
    return f"{Path(file).name}:{gap}" if len(files) > 1 else gap


@functools.cache
def most_points(unit, files=()):
    """The most points that a student can get in a unit: those of what both tracks share, and of the track that gives
    more. files: names of files, to count these only."""
    return most(
        (part.track, criterion.points)
        for part in UNITS[unit]
        if not files or Path(part.file).name in files
        for check in part.checks
        for criterion in check.criteria
    )
