"""What gradings took, for each user of a machine: from it follows how long the next one takes (grader.instructors.grade.estimate).

All seconds are those of a machine with nothing else to do: what other programs took is divided out. On a machine that has not graded
yet, REFERENCE counts, which was measured on another one; the time of a spin (speed.py) says how much faster or slower this one is.
"""

import json
import os
import random
from contextlib import suppress
from pathlib import Path

from handson.files import written_aside

REFERENCE = Path(__file__).with_name("seconds.json")
KEPT = 20  # pieces of each kind that are kept: enough to show how much they differ
NEW = 0.3  # the share of a new grading in the numbers that are averaged
QUIET = 1.15  # below this slowdown, other programs do not matter


def place():
    """The file."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "handson" / "grading_seconds.json"


def read(spin=None):
    """What is known on a machine whose spins take `spin` seconds: {"pieces": {name of a kind: [[core-seconds, seconds of waiting] of some pieces]}, "start": seconds before the first
    piece, "dispatch": CPU seconds of the grader itself for a piece, "overhead": core-seconds of a piece for each second of CPU time of its ranks,
    "spin": CPU seconds of a spin, "queues": {site: seconds until a job's engines were there}}."""
    reference, own = json.loads(REFERENCE.read_text()) | {"queues": {}}, of_this_machine()
    return own | {"pieces": at_speed(reference, own["spin"])["pieces"] | own["pieces"]} if own else at_speed(reference, spin)


def of_this_machine():
    """The same, without what comes from REFERENCE; empty where nothing was graded."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        own = json.loads(place().read_text())
        return {name: float(own[name]) for name in ("start", "dispatch", "overhead", "spin")} | {
            "pieces": {str(kind): [[float(took), float(waited)] for took, waited in some] for kind, some in own["pieces"].items() if some},
            "queues": {str(site): float(seconds) for site, seconds in own["queues"].items()},
        }
    return {}


def at_speed(known, spin):
    """`known`, for a machine whose spins take `spin` seconds of CPU time, or None for as fast a one."""
    factor = spin / known["spin"] if spin else 1.0
    pieces = {kind: [[factor * took, waited] for took, waited in some] for kind, some in known["pieces"].items()}
    return known | {"pieces": pieces, "start": factor * known["start"], "dispatch": factor * known["dispatch"], "spin": spin or known["spin"]}


def write(known):
    """Keep what is known."""
    with suppress(OSError), written_aside(place(), durable=False) as file:  # an estimate is worth no failure
        file.write(json.dumps(known, indent=1).encode())


def add_queue(site, seconds):
    """Keep how long a site's job of engines took until all were there."""
    known = of_this_machine() or read() | {"pieces": {}}
    write(known | {"queues": known["queues"] | {site: seconds}})


def slowdown(took, overhead, spun):
    """How many times as long as on an idle machine a grading took, by the CPU time of its pieces; and the overhead, known better now.

    took: {kind: [(seconds, engines, CPU seconds, seconds of waiting)]}; spun: the slowdown of spins before it.
    """
    pieces = [piece for some in took.values() for piece in some]
    used = sum(cpu for _, _, cpu, _ in pieces)
    if not used:
        return max(1.0, spun), overhead
    ratio = sum((seconds - waited) * engines for seconds, engines, _, waited in pieces) / used
    if spun < QUIET:
        overhead += NEW * (ratio - overhead)
    return max(1.0, ratio / overhead), overhead


def kept(took, factor):
    """Up to KEPT pieces of a kind as [core-seconds, seconds of waiting], from a grading that took `factor` times as long."""
    new = [[max(0.0, seconds - waited) * engines / factor, waited] for seconds, engines, _, waited in took]
    return random.Random(0).sample(new, min(KEPT, len(new)))


def averaged(before, new):
    """A number that is known from before, and its newest value."""
    return before + NEW * (new - before)
