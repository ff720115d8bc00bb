"""How long a grading will take: what its kinds of pieces took before on this machine, placed on engines as the Placer does, on a clock that
only counts. `grade` prints it before it starts; `python -m grader estimate` for classes and clusters that are not there yet.
"""

import heapq
import json
import os
from collections import Counter
from contextlib import suppress
from itertools import islice
from pathlib import Path

from grader.course import UNITS
from grader.instructors.grade import work
from grader.instructors.grade.placing import AHEAD, chosen_host
from handson.errors import OneSentence
from handson.files import written_aside

LEAST = 4000  # pieces that are placed one by one; of more, the second half of these repeats itself
NEW = 0.3  # the share of a new grading in what is remembered


class EstimateError(OneSentence, ValueError):
    """Why nothing can be said of the time."""


def place():
    """The file that remembers, for each user of a machine."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "handson" / "grading_seconds.json"


def remembered():
    """{"pieces": {name of a kind: seconds}, "start": seconds before the first piece}; both empty where nothing was graded yet."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        found = json.loads(place().read_text())
        return {"pieces": {str(kind): float(seconds) for kind, seconds in found["pieces"].items()}, "start": float(found["start"])}
    return {"pieces": {}, "start": 0.0}


def remember(took, jobs, hosts, seconds):
    """Learn from a grading that has ended. took: {kind: [seconds of each piece]}; jobs: (kind, ranks) of all pieces; hosts: engines of each
    host; seconds: of all of it. What the placing of the pieces does not explain is the start."""
    before = remembered()
    for kind, times in took.items():
        mean = sum(times) / len(times)
        before["pieces"][name(kind)] = mean + (1 - NEW) * (before["pieces"].get(name(kind), mean) - mean)
    own = {name(kind): sum(times) / len(times) for kind, times in took.items()}
    start = max(0.0, seconds - makespan([(own[name(kind)], ranks) for kind, ranks in jobs if name(kind) in own], hosts))
    before["start"] = start + (1 - NEW) * ((before["start"] or start) - start)
    with suppress(OSError), written_aside(place(), durable=False) as file:  # an estimate is worth no failure
        file.write(json.dumps(before, indent=1).encode())


def name(kind):
    """A kind of pieces in one word, for the file."""
    unit, part, gaps = kind
    return f"{unit}/{part}/{','.join(gaps)}"


def jobs_of(pairs):
    """(kind, ranks) of all pieces that are run of (submission, unit) pairs, in the order in which the Placer gets them."""
    return [key for submission, unit in pairs for key in work.handed_in(submission, unit)]


def seconds(jobs, hosts, known=None):
    """Seconds until pieces (kind, ranks) are graded on engines, as many as `hosts` lists of each host; None if most kinds are unknown."""
    known = known or remembered()
    times = [(known["pieces"].get(name(kind)), ranks) for kind, ranks in jobs]
    measured = [took for took, _ in times if took is not None]
    if len(measured) < len(times) / 2 or not times:
        return None
    mean = sum(measured) / len(measured)
    return known["start"] + makespan([(mean if took is None else took, ranks) for took, ranks in times], hosts)


def makespan(pieces, hosts):
    """Seconds in which engines get through `pieces` (seconds, ranks), in this order; hosts: the number of engines of each host.

    Of many pieces only the first are placed: later ones take as long as the second half of these, if a class's submissions are alike.
    """
    most = max(LEAST, 4 * AHEAD * sum(hosts))
    if len(pieces) <= most:
        return _placed(pieces, hosts)
    half, whole = _placed(pieces[: most // 2], hosts), _placed(pieces[:most], hosts)
    work_left = sum(took * ranks for took, ranks in pieces[most:]) / sum(took * ranks for took, ranks in pieces[most // 2 : most])
    return whole + (whole - half) * work_left


def _placed(pieces, hosts):
    pieces, free, most = iter(pieces), list(hosts), max(hosts)
    waiting, running, now, number = Counter(), [], 0.0, 0
    while True:
        waiting.update(islice(pieces, max(0, AHEAD * sum(hosts) - waiting.total())))
        for kind in sorted(waiting, reverse=True):  # the longest first
            took, ranks = kind[0], min(kind[1], most)
            while waiting[kind] and (host := chosen_host(ranks, free)) is not None:
                waiting[kind] -= 1
                free[host] -= ranks
                number += 1
                heapq.heappush(running, (now + took, number, host, ranks))
        waiting = +waiting
        if not running:
            return now
        now, _, host, ranks = heapq.heappop(running)
        free[host] += ranks


def numbers(option, text):
    """[100, 1000] of "100,1000". Raises EstimateError."""
    words = text.replace(" ", "").split(",")
    if not all(word.isdigit() and 0 < int(word) <= 10**6 for word in words):
        raise EstimateError(f"{option} {text} is no list of positive whole numbers: give one such as 100,1000")
    return [int(word) for word in words]


def sentence(jobs, hosts):
    """The estimate in words."""
    found = seconds(jobs, hosts)
    if found is None:
        return "How long this takes is not known yet: this machine has not graded these units before."
    return f"Estimate: {readable(found)} on {sum(hosts)} engine{'s' * (sum(hosts) != 1)}."


def readable(found):
    """Seconds in words: "40 s", "12 min", "3.4 h"."""
    return f"{found:.0f} s" if found < 100 else f"{found / 60:.0f} min" if found < 6000 else f"{found / 3600:.1f} h"


def table(students, engines, per_host, start=None):
    """Lines: the time to grade classes that hand in all units, on clusters of engines. start: seconds until a cluster's engines run.

    Raises EstimateError where this machine has not graded anything yet.
    """
    known = remembered()
    all_kinds = (((unit, number, gaps), ranks) for unit, parts in UNITS.items() for number, part in enumerate(parts) for ranks, gaps in work.by_ranks(part))
    kinds = [key for key in all_kinds if name(key[0]) in known["pieces"]]
    if not kinds:
        raise EstimateError("this machine has not graded anything yet: grade some submissions first, such as by `python -m grader tour`")
    if start is not None:
        known["start"] = start
    rows = [("students", *(f"{count} engines" for count in engines))]
    for number in students:
        cells = []
        for count in engines:
            hosts = [per_host] * (count // per_host) + [count % per_host] * (count % per_host > 0)
            cells.append(readable(seconds([key for _ in range(number) for key in kinds], hosts, known)))
        rows.append((str(number), *cells))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]
