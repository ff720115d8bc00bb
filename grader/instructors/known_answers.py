"""Known answers, wrong and right, to prove the checks with; never given to students.

grader/units/topic/instructors/known_TRACK.toml lists, for the gaps of the files of one track ("shared": those that both tracks have), under [[mutant]] plausible wrong answers (gap, name, code, the criterion that must
catch it, words of the message that a student must then read, under `also` other criteria that may fail with it, and under `check`
which check is meant if not the gap's own), and under
[[variant]] right answers that are written otherwise (gap, name, code).
"""

import tomllib
from pathlib import Path

from grader import exercises, gaps

UNITS = Path(__file__).resolve().parents[1] / "units"


def known(unit, track):
    """The mutants and the variants of one track of a unit, as lists of dictionaries."""
    path = UNITS / unit / "instructors" / f"known_{track or 'shared'}.toml"
    entries = tomllib.loads(path.read_text()) if path.exists() else {}
    return entries.get("mutant", []), entries.get("variant", [])


def solved(file, **instead):
    """The text of an exercise with all gaps filled from the solution, but those named in `instead` with that code."""
    return gaps.fill(exercises.given_out(file), {**gaps.answers(exercises.solution(file).read_text()), **instead})
