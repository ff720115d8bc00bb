"""What students wrote into gaps: in which file a gap is, and the code in it as it was handed in. Pages show it."""

import functools
from collections import defaultdict
from contextlib import suppress

from grader import exercises
from grader.course import UNITS, name_of_gap
from grader.gaps import GapError, TextError, find
from grader.instructors.collect import unpacked

LONGEST = 1_500  # the most characters of an answer that are shown


def file_of(unit, track, gap):
    """The file that has this gap, below the course's folder; "" for a gap that the course has no more."""
    return _places().get((unit, track, gap), ("", ""))[0]


def by_file(unit_name, gaps):
    """[(file, its gaps)] of some grader.instructors.scores.Gaps of a unit, in their order."""
    files = defaultdict(list)
    for gap in gaps:
        files[file_of(unit_name, gap.track, gap.name)].append(gap)
    return list(files.items())


def written(folder, submission, unit, track, gap):
    """The code that a student wrote into a gap, from what `grade` unpacked below `folder`; "" if it is not there any
    more."""
    file, name = _places().get((unit, track, gap), ("", ""))
    handed_in = unpacked(submission, folder / "submissions")
    if not handed_in or not file:
        return ""
    try:
        text = exercises.handed_in(file, (handed_in / file).read_bytes())
        fragment = find(exercises.given_out(file), name, text)
    except (OSError, KeyError, StopIteration, GapError, TextError):
        return ""
    code = fragment.code if fragment else ""
    return code if len(code) <= LONGEST else f"{code[:LONGEST]}\n[...]"


def is_other(folder, unit):
    """Whether the files of a unit in `folder`, or None, are others than those given out."""
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
    """{(unit, track, the gap as verdicts name it): (file, the gap's name in it)}."""
    return {
        (unit, part.track, name_of_gap(unit, part.file, check.gap)): (part.file, check.gap)
        for unit, parts in UNITS.items()
        for part in parts
        for check in part.checks
    }
