"""Known answers, wrong and right, which prove that the checks work. Students never receive them.

grader/units/topic/instructors/known_TRACK.toml lists them for the gaps of one track's files ("shared": files that both tracks share):

    [[mutant]]     a plausible wrong answer: gap, name, code; criterion: the title of the one that must fail; message: words that a
                   student must then read; also: titles of other criteria that may fail; check: the check that is meant, if not the gap's
    [[variant]]    a right answer that is written in another way: gap, name, code
"""

import functools
import tomllib

from grader import exercises, gaps
from handson.files import COURSE

UNITS = COURSE / "grader/units"


@functools.cache  # a file has a thousand lines, and is asked for again and again
def known(unit, track):
    """(mutants, variants) of one track of a unit, each a list of dictionaries."""
    path = UNITS / unit / "instructors" / f"known_{track or 'shared'}.toml"
    entries = tomllib.loads(path.read_text()) if path.exists() else {}
    return entries.get("mutant", []), entries.get("variant", [])


def solved(file, **instead):
    """The text of an exercise with all gaps filled: those named in `instead` with its code, the remaining ones from the solution."""
    return gaps.fill(exercises.given_out(file), {**gaps.answers(exercises.solution(file).read_text()), **instead})
