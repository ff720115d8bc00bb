"""What gradings took, for each user of a machine: from it follows how long the next one takes (grader.instructors.grade.estimate).

Pieces are remembered by their CPU seconds, which other programs hardly change. All other seconds are those of a machine with nothing else to
do: what other programs took is divided out. On a machine that has not graded yet, REFERENCE counts, which `python -m grader estimate --record`
has written on another one; the time of a spin (speed.py) says how much faster or slower this one is.
"""

import json
import os
import random
from contextlib import suppress
from pathlib import Path

from grader.instructors.grade.work import Cost
from handson.files import written_aside

REFERENCE = Path(__file__).with_name("seconds.json")
KEPT = 20  # pieces of each kind that are kept: enough to show how much they differ
FIRM = 100  # pieces of a grading that count as much as all that is known before, in the numbers that are averaged
NUMBERS = ("start", "dispatch", "overhead", "share", "spin")
BUSY = 1.5  # above this slowdown, they show how much they matter
QUIET = 1.15  # below this slowdown, other programs do not matter


def place():
    """The file."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "handson" / "grading_seconds.json"


def read(spin=None):
    """What is known on a machine whose spins take `spin` seconds: {"pieces": {name of a kind: [Cost of some pieces]}, "start": seconds that
    do not depend on the pieces, "dispatch": CPU seconds of the grader itself for a piece, "overhead": seconds of a piece by the clock of an idle
    machine for each second that follows from its Cost, "share": see slowed, "spin": CPU seconds of a spin, "loading": {the last of the modules
    that are loaded for some files: CPU seconds}, "queues": {site: seconds until a job's engines were there}}."""
    reference, own = read_reference(), of_this_machine()
    return own | {"pieces": at_speed(reference, own["spin"])["pieces"] | own["pieces"]} if own else at_speed(reference, spin)


def read_reference():
    """What the course's authors have measured, in the same form."""
    return _checked(json.loads(REFERENCE.read_text()) | {"queues": {}})


def of_this_machine():
    """The same, without what comes from REFERENCE; empty where nothing was graded."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        return _checked(json.loads(place().read_text()))
    return {}


def _checked(content):
    return {name: float(content[name]) for name in NUMBERS} | {
        "loading": {str(library): float(seconds) for library, seconds in content["loading"].items()},
        "pieces": {str(kind): [Cost(*map(float, cost)) for cost in some] for kind, some in content["pieces"].items() if some},
        "queues": {str(site): float(seconds) for site, seconds in content["queues"].items()},
    }


def at_speed(known, spin):
    """`known`, for a machine whose spins take `spin` seconds of CPU time, or None for as fast a one."""
    factor = spin / known["spin"] if spin else 1.0
    pieces = {kind: [Cost(factor * cost.engine, factor * cost.ranks, cost.waited) for cost in some] for kind, some in known["pieces"].items()}
    loading = {library: factor * seconds for library, seconds in known["loading"].items()}
    numbers = {name: factor * known[name] for name in ("start", "dispatch")}
    return known | numbers | {"pieces": pieces, "loading": loading, "spin": spin or known["spin"]}


def write(known):
    """Keep what is known."""
    with suppress(OSError), written_aside(place(), durable=False) as file:  # an estimate is worth no failure
        file.write(json.dumps(known, indent=1).encode())


def add_queue(site, seconds):
    """Keep how long a site's job of engines took until all were there."""
    known = of_this_machine() or read() | {"pieces": {}}
    write(known | {"queues": known["queues"] | {site: seconds}})


def slowed(spun, known):
    """How many times as long as on an idle machine pieces take, where a spin takes `spun` times as long.

    It is less: a spin computes all the time, while a piece's processes often wait for each other, get a core sooner then, and are more than
    the engines have cores. known["share"] is the share of a spin's slowdown that pieces had in earlier gradings.
    """
    return 1 + known["share"] * (spun - 1)


def slowdown(took, overhead, spun):
    """How many times as long as on an idle machine a grading took, by the cost of its pieces; and the overhead, known better now.

    took: {kind: [(seconds, engines, Cost)]}; spun: the slowdown of spins before it.
    """
    pieces = [piece for some in took.values() for piece in some]
    counted = sum((cost.seconds(engines) - cost.waited) * engines for _, engines, cost in pieces)
    if not counted:
        return max(1.0, spun), overhead
    ratio = sum((seconds - cost.waited) * engines for seconds, engines, cost in pieces) / counted
    if spun < QUIET:
        overhead = averaged(overhead, ratio, len(pieces))
    return max(1.0, ratio / overhead), overhead


def kept(took):
    """The Cost of up to KEPT pieces of a kind."""
    return random.Random(0).sample([cost for _, _, cost in took], min(KEPT, len(took)))


def averaged(before, new, pieces):
    """A number that is known from before, and its value in a grading of so many pieces."""
    return before + pieces / (pieces + FIRM) * (new - before)
