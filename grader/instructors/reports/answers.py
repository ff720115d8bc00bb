"""Find the code that students wrote into gaps, and the files of the gaps, for pages."""

import functools
import hashlib
import textwrap
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass

from grader import exercises
from grader.course import UNITS, name_of_gap
from grader.gaps import GapError, TextError, find
from grader.instructors.collect import folded, unpacked
from grader.judging import LONGEST_FILE, MOST_LINES

LONGEST = 1_500  # characters of an answer that are shown


def file_of(unit, track, gap):
    """Return the file with this gap, relative to the course's folder, or "" for a gap that the course no longer has."""
    return _places().get((unit, track, gap), ("", ""))[0]


def by_file(unit_name, gaps):
    """Return [(file, its gaps)] of some grader.instructors.scores.Gaps of a unit, in their order."""
    files = defaultdict(list)
    for gap in gaps:
        files[file_of(unit_name, gap.track, gap.name)].append(gap)
    return list(files.items())


def written(folder, submission, unit, track, gap):
    """Return the code that a student wrote into a gap, from the files that `grade` unpacked below `folder`, or "" if
    they are missing."""
    code = _code(unpacked(submission, folder / "submissions"), unit, track, gap)
    return code if len(code) <= LONGEST else f"{code[:LONGEST]}\n[...]"


def _code(place, unit, track, gap):
    """Return the code in a gap of the submission at `place`, a folder or None, or "" if there is none."""
    file, name = _places().get((unit, track, gap), ("", ""))
    if not place or not file:
        return ""
    try:
        text = exercises.handed_in(file, (place / file).read_bytes())
        if len(text) > LONGEST_FILE or text.count("\n") > MOST_LINES:
            return ""
        fragment = find(exercises.given_out(file), name, text)
    except (OSError, KeyError, StopIteration, GapError, TextError):
        return ""
    return fragment.code if fragment else ""


def given(unit, track, gap):
    """Return the released content of a gap, or "" for a gap that the course no longer has."""
    file, name = _places().get((unit, track, gap), ("", ""))
    if not file:
        return ""
    exercise = exercises.given_out(file)
    of_gap = exercise.gap(name)
    return textwrap.dedent("\n".join(exercise.lines[of_gap.first : of_gap.end]))


@dataclass(frozen=True)
class Same:
    """The students who wrote the same code into a gap, ignoring comments and empty lines."""

    code: str
    scores: tuple

    @property
    def digest(self):
        return hashlib.sha256(_plain(self.code).encode()).hexdigest()[:16]


def alike(folder, scores, unit, track, gap):
    """Return each Same of a gap, with non-empty code, the most frequent first."""
    found = defaultdict(list)
    for score in scores:
        attempt = next((one.attempt for one in score.units if one.name == unit), None)
        if attempt and (code := _code(folded(attempt, folder / "submissions"), unit, track, gap)):
            found[_plain(code)].append((code, score))
    return sorted(
        (Same(some[0][0], tuple(score for _, score in some)) for some in found.values()),
        key=lambda same: (-len(same.scores), same.scores[0].student),
    )


def _plain(code):
    lines = (line.rstrip() for line in code.split("\n"))
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def is_other(folder, unit):
    """Return whether the files of a unit in `folder`, or None, differ from the released ones."""
    for part in UNITS[unit] if folder else ():
        with suppress(OSError):
            data = (folder / part.file).read_bytes()
            try:
                text = exercises.handed_in(part.file, data)
            except TextError:
                return True
            if text.split() != exercises.given_out(part.file).text.split():
                return True
    return False


@functools.cache
def _places():
    """Return {(unit, track, the gap's name in verdicts): (file, the gap's name in it)}."""
    return {
        (unit, part.track, name_of_gap(unit, part.file, check.gap)): (part.file, check.gap)
        for unit, parts in UNITS.items()
        for part in parts
        for check in part.checks
    }
