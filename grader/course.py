"""The units of the course, found by the names of their folders.

The exercises of the unit `topic` are in solutions/NN_topic; its checks are in grader/units/topic.
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
NOTEBOOK = "notebook"  # the name of the unit's notebook in unit.py; "notebook_b" is the second one, NNb_topic
NAMED_NOTEBOOK = re.compile(rf"{NOTEBOOK}(?:_([b-z]))?")


@dataclass(frozen=True)
class Part:
    """One file of a unit: its path relative to the course's folder, its track ("" for files of both tracks), and the
    checks of its gaps."""

    file: str
    track: str
    checks: tuple

    @property
    def folder(self):
        """Return the track whose folder contains the file, or "": the name of its hidden cases and known answers."""
        return next((track for track in TRACKS if f"/{track}/" in self.file), "")


def _found():
    """Return {topic: the unit's Parts}, in the order of the units' numbers."""
    units = {}
    for folder in exercises.folders():
        topic = folder.split("_", 1)[1]
        if (Path(__file__).parent / "units" / topic).is_dir():
            checks = importlib.import_module(f"grader.units.{topic}.unit").CHECKS
            units[topic] = tuple(_part(folder, name, checks) for name in checks)
    return units


def _part(folder, name, checks):
    """Return the Part of one of the files in `checks`. A script belongs to its track if the other track has a script of
    this name; otherwise it belongs to both."""
    notebook = NAMED_NOTEBOOK.fullmatch(name)
    file = f"notebooks/{folder[:2]}{notebook[1] or ''}{folder[2:]}.ipynb" if notebook else f"exercises/{folder}/{name}"
    track, _, script = name.partition("/")
    in_both = all(f"{one}/{script}" in checks for one in TRACKS)
    return Part(file, track if in_both else "", checks[name])


UNITS = _found()


def uses_frameworks(unit):
    """Return whether a unit has scripts for packages of the second environment."""
    return any(needs_frameworks(part.file) for part in UNITS[unit])


@functools.cache
def has_contest(unit):
    """Return whether a unit declares a contest, so that it has a leaderboard."""
    return any(check.contest for part in UNITS[unit] for check in part.checks)


def ready():
    """Return the names of the units that can be checked here. Some units need the second environment."""
    there = frameworks.why_not() is None
    return [unit for unit in UNITS if there or not uses_frameworks(unit)]


@functools.cache
def name_of_gap(unit, file, gap):
    """Return the name of a gap in verdicts, reports and commands: `file:gap` if another file of the unit has a gap of
    this name."""
    files = {Path(part.file).name for part in UNITS[unit] for check in part.checks if check.gap == gap}
    return f"{Path(file).name}:{gap}" if len(files) > 1 else gap


@functools.cache
def most_points(unit, files=()):
    """Return the largest points for a student in a unit: the points of the shared files, and of the track that gives
    more. files: names of files to count, by default all."""
    return most(
        (part.track, criterion.points)
        for part in UNITS[unit]
        if not files or Path(part.file).name in files
        for check in part.checks
        for criterion in check.criteria
    )
