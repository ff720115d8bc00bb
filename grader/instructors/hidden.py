"""Cases that only the grader adds to the public checks: other sizes, other numbers of workers, edge cases. Students
never receive them.

grader/units/topic/instructors/hidden_TRACK.toml has a list of cases for each gap ("run" for the whole script), as
grader.checks.check.Check describes them; hidden_TRACK_*.toml have further gaps.
"""

import functools
import tomllib

from handson.files import COURSE

UNITS = COURSE / "grader/units"


@functools.cache
def cases():
    """Return {(unit, track, gap): cases}. The track of files that both tracks share is ""."""
    found = {}
    for path in sorted(UNITS.glob("*/instructors/hidden_*.toml")):
        unit, track = path.parts[-3], path.stem.removeprefix("hidden_").partition("_")[0]
        for gap, of_gap in tomllib.loads(path.read_text()).items():
            found[unit, "" if track == "shared" else track, gap] = tuple(of_gap)
    return found
