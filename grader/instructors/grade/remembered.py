"""What gradings took, for each user of a machine: from it follows how long the next one takes
(grader.instructors.grade.estimate).

Pieces are remembered by their CPU seconds, which other programs hardly change. All other seconds are those of a machine
with nothing else to do: what other programs took is divided out. On a machine that has not graded yet, REFERENCE
counts, which `python -m grader estimate --record` has written on another one; the time of a spin (speed.py) says how
much faster or slower this one is.
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
NUMBERS = ("start", "dispatch", "alone", "together", "share", "spin")
BUSY = 1.5  # above this slowdown, they show how much they matter
# machines whose spins differ by less count as equally fast: on a shared machine, spins differ that much from minute to
# minute
ALIKE = 1.3
QUIET = 1.15  # below this slowdown, other programs do not matter


def place():
    """The file."""
    return (
        Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "handson" / "grading_seconds.json"
    )


def read(spin=None):
    """What is known on a machine whose spins take `spin` seconds: {"pieces": {name of a kind: [Cost of some pieces]},
    "start": seconds until the engines are there, "dispatch": CPU seconds of the grader itself for a piece, "alone" and
    "together": seconds by the clock of an idle machine for each second that follows from a piece's Cost, where it takes
    one engine and where its ranks take several, "share": see slowed, "spin": CPU seconds of a spin, "loading": {the
    last of the modules that are loaded for some files: CPU seconds}, "queues": {site: seconds until a job's engines
    were there}}."""
    reference, own = read_reference(), of_this_machine()
    return (
        own | {"pieces": at_speed(reference, own["spin"])["pieces"] | own["pieces"]}
        if own
        else at_speed(reference, spin)
    )


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
        "pieces": {
            str(kind): [Cost(*map(float, cost)) for cost in some] for kind, some in content["pieces"].items() if some
        },
        "queues": {str(site): float(seconds) for site, seconds in content["queues"].items()},
    }


def at_speed(known, spin):
    """`known`, for a machine whose spins take `spin` seconds of CPU time, or None for as fast a one."""
    factor = spin / known["spin"] if spin else 1.0
    factor = 1.0 if 1 / ALIKE < factor < ALIKE else factor
    pieces = {
        kind: [Cost(factor * cost.engine, factor * cost.ranks, cost.waited) for cost in some]
        for kind, some in known["pieces"].items()
    }
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

    It is less: a spin computes all the time, while a piece's processes often wait for each other, get a core sooner
    then, and are more than the engines have cores. known["share"] is the share of a spin's slowdown that pieces had in
    earlier gradings.
    """
    return 1 + known["share"] * (spun - 1)


def overhead(known, engines, of):
    """Seconds by the clock of an idle machine for each second that follows from the Cost of a piece on so many engines,
    of all that there are.

    Ranks do not always compute at the same time, and the grader needs a core now and then; beside a single engine one
    is free.
    """
    return 1.0 if of == 1 else known[_which(engines)]


def _which(engines):
    return "together" if engines > 1 else "alone"


def slowdown(took, known, spun, of=2):
    """How many times as long as on an idle machine a grading took, by the cost of its pieces; and "alone" and
    "together", known better now.

    took: {kind: [(seconds, engines, Cost)]}; spun: the slowdown of spins before it; of: all engines.
    """
    pieces, better = (
        [piece for some in took.values() for piece in some],
        {name: known[name] for name in ("alone", "together")},
    )
    clock = expected = 0.0
    for name in better:
        some = [piece for piece in pieces if _which(piece[1]) == name]
        counted = sum((cost.seconds(engines) - cost.waited) * engines for _, engines, cost in some)
        computed = sum((seconds - cost.waited) * engines for seconds, engines, cost in some)
        if counted and spun < QUIET and of > 1:
            better[name] = averaged(known[name], computed / counted, len(some))
        clock, expected = clock + computed, expected + (1.0 if of == 1 else better[name]) * counted
    return max(1.0, clock / expected if expected else spun), better


def kept(took):
    """The Cost of up to KEPT pieces of a kind."""
    return random.Random(0).sample([cost for _, _, cost in took], min(KEPT, len(took)))


def averaged(before, new, pieces):
    """A number that is known from before, and its value in a grading of so many pieces."""
    return before + pieces / (pieces + FIRM) * (new - before)
