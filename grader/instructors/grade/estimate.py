"""How long a grading will take: what its kinds of pieces took before, placed on engines as the Placer does, on a clock
that only counts. `grade` prints it before it starts, and goes on estimating; `python -m grader estimate` for classes
and clusters that are not there yet.
"""

import heapq
import math
import random
from collections import Counter
from itertools import islice

from grader.course import UNITS
from grader.instructors.grade import remembered, work
from grader.instructors.grade.placing import AHEAD, chosen_host
from grader.instructors.grade.work import Cost
from grader.probes import FOR_FRAMEWORKS, loaded_for
from handson.cluster import site as sites
from handson.errors import OneSentence
from handson.words import counted

LEAST = 4000  # pieces that are placed one by one; of more, the second half of these repeats itself
TRUSTED = 0.2  # the share of the work after which the time left follows from the pace alone


class EstimateError(OneSentence, ValueError):
    """Why nothing can be said of the time."""


def name(kind):
    """A kind of pieces in one word, for the file."""
    unit, part, gaps, *untouched = kind
    return "/".join([unit, str(part), ",".join(gaps), *untouched])


def remember(took, pieces, engines, start, used, spun, spin):
    """Learn from a grading that has ended. took: {kind: [(seconds, engines, Cost) of each piece]}; pieces: their
    number; engines: all there were, after `start` seconds; used: CPU seconds of the grader itself; spun, spin:
    speed.here before it."""
    known, before = remembered.read(spin), remembered.of_this_machine().get("pieces", {})
    factor, better = remembered.slowdown(took, known, spun, engines)
    if spun > remembered.BUSY:
        better["share"] = remembered.averaged(known["share"], min(1.0, (factor - 1) / (spun - 1)), pieces)
    better["dispatch"] = remembered.averaged(known["dispatch"], used / max(1, pieces), pieces)
    better["start"] = remembered.averaged(known["start"], start / spun, pieces)
    better["spin"] = min(known["spin"], spin or known["spin"])
    own = {name(kind): remembered.kept(some) for kind, some in took.items()}
    remembered.write(
        known
        | better
        | {"pieces": before | {kind: (some + before.get(kind, []))[: remembered.KEPT] for kind, some in own.items()}}
    )


def jobs_of(pairs):
    """(kind, ranks) of all pieces that are run of (submission, unit) pairs, in the order in which the Placer gets
    them."""
    return [key for submission, unit in pairs for key in work.handed_in(submission, unit)]


def seconds_of(jobs, hosts, known, spun=1.0, slowdown=None):
    """Seconds until pieces (kind, ranks) are graded on engines, as many as `hosts` lists of each host; None if most
    kinds are unknown.

    spun: how many times as long as on an idle machine a spin takes, and the start and the grader's own part, which
    compute all the time; slowdown: the same of pieces, if it is known better than by remembered.slowed. Each piece
    takes as long as one of its kind that is remembered (_likely): so there are stragglers, as in a class.
    """
    most, slowdown = max(hosts), slowdown or remembered.slowed(spun, known)
    means = {kind: _mean(some) for kind, some in known["pieces"].items()}
    found = [name(kind) for kind, _ in jobs]
    there = [means[kind] for kind in found if kind in means]
    if len(there) < len(jobs) / 2 or not jobs:
        return None
    mean = _mean(there)
    loading, late = _loading(jobs, known)
    # Engines of this machine share what is loaded.
    pieces = [(math.inf, 1, spun * late)] * (late > 0) * (1 if len(hosts) == 1 else sum(hosts))
    likely = {kind: _likely(known["pieces"].get(kind, [mean]), count) for kind, count in Counter(found).items()}
    for kind, (_, ranks) in zip(found, jobs):
        costs = means.get(kind, mean), likely[kind].pop()
        engines = min(ranks, most)
        expected, took = (
            cost.seconds(engines, slowdown * remembered.overhead(known, engines, sum(hosts))) for cost in costs
        )
        pieces.append((expected, ranks, took))
    return spun * max(known["start"], loading) + makespan(pieces, hosts, spun * known["dispatch"])


def _loading(jobs, known):
    """CPU seconds in which libraries are loaded: while the engines start, and those of other systems, while engines
    work already."""
    needed = {loaded_for([UNITS[unit][part].file])[-1] for unit, part, *_ in (kind for kind, _ in jobs)}
    late = known["loading"].get(FOR_FRAMEWORKS[-1], 0.0) if FOR_FRAMEWORKS[-1] in needed else 0.0
    return sum(known["loading"].get(library, 0.0) for library in needed) - late, late


def cpu_seconds_of(jobs, known):
    """CPU seconds of all engines and ranks that grade pieces (kind, ranks), as far as their kinds are known: other
    programs do not change them."""
    means = {kind: _mean(some) for kind, some in known["pieces"].items()}
    return sum(means[name(kind)].engine + means[name(kind)].ranks for kind, _ in jobs if name(kind) in means)


def _likely(some, count):
    """The Cost of `count` pieces of a kind of which `some` are known: of the cheap ones and the dear ones the same
    shares, in any order. Few pieces drawn at random would be all dear, or none."""
    some = sorted(some, key=sum)
    found = [some[int((number + 0.5) / count * len(some))] for number in range(count)]
    random.Random(0).shuffle(found)
    return found


def _mean(some):
    return Cost(*(sum(values) / len(some) for values in zip(*some)))


def makespan(pieces, hosts, dispatch=0.0):
    """Seconds in which engines get through `pieces` (expected seconds, ranks, seconds), in this order; hosts: the
    number of engines of each host; dispatch: seconds that the grader itself needs for each piece, one after the other.

    Of many pieces only the first are placed: later ones take as long as the second half of these, if a class's
    submissions are alike.
    """
    most = max(LEAST, 4 * AHEAD * sum(hosts))
    if len(pieces) <= most:
        return _placed(pieces, hosts, dispatch)
    half, whole = _placed(pieces[: most // 2], hosts, dispatch), _placed(pieces[:most], hosts, dispatch)
    work_left = sum(took * ranks for _, ranks, took in pieces[most:]) / sum(
        took * ranks for _, ranks, took in pieces[most // 2 : most]
    )
    return whole + (whole - half) * work_left


def _placed(pieces, hosts, dispatch):
    pieces, free, most = iter(pieces), list(hosts), max(hosts)
    waiting, running, now, number, grader, count, idle = {}, [], 0.0, 0, 0.0, 0, sum(hosts)
    while True:
        for expected, ranks, took in islice(pieces, max(0, AHEAD * sum(hosts) - count)):
            waiting.setdefault((expected, ranks), []).append(took)
            count += 1
        for kind in sorted(waiting, reverse=True):  # the longest first
            ranks = min(kind[1], most)
            if not idle:
                break
            while waiting[kind] and ranks <= idle and (host := chosen_host(ranks, free)) is not None:
                free[host], idle = free[host] - ranks, idle - ranks
                number, count, grader = number + 1, count - 1, max(grader, now) + dispatch
                heapq.heappush(running, (grader + waiting[kind].pop(0), number, host, ranks))
            if not waiting[kind]:
                del waiting[kind]
        if not running:
            return now
        now, _, host, ranks = heapq.heappop(running)
        free[host], idle = free[host] + ranks, idle + ranks


class Left:
    """How long the rest of a grading takes: at first what was expected, then by the pace of the work that is done."""

    def __init__(self, jobs, whole, known):
        """jobs: (kind, ranks) of all pieces; whole: the seconds that were expected, or None."""
        self.means = {kind: sum(_mean(some)) for kind, some in known["pieces"].items()}
        self.all, self.done, self.whole, self.start = (
            sum(self._work(kind) for kind, _ in jobs),
            0.0,
            whole,
            known["start"],
        )

    def _work(self, kind):
        """Core-seconds that a piece is expected to take."""
        return 0.001 + self.means.get(name(kind), 0.5)

    def finish(self, kind):
        """Note that a piece of a kind is done."""
        self.done += self._work(kind)

    def after(self, seconds):
        """The seconds left, `seconds` after the beginning."""
        share = min(1.0, self.done / self.all) if self.all else 1.0
        by_pace = max(0.0, seconds - min(self.start, seconds / 2)) * (1 - share) / max(share, 1e-9)
        sure = min(1.0, share / TRUSTED)
        return by_pace if self.whole is None else sure * by_pace + (1 - sure) * max(0.0, self.whole - seconds)


def numbers(option, text):
    """[100, 1000] of "100,1000". Raises EstimateError."""
    words = text.replace(" ", "").split(",")
    if not all(word.isdigit() and 0 < int(word) <= 10**6 for word in words):
        raise EstimateError(f"{option} {text} is no list of positive whole numbers: give one such as 100,1000")
    return [int(word) for word in words]


def in_words(jobs, hosts, known, spun=1.0):
    """(seconds until `jobs` are graded, or None; the same in words); as seconds_of."""
    found = seconds_of(jobs, hosts, known, spun)
    return found, sentence(found, hosts, seconds_of(jobs, hosts, known) if spun > remembered.QUIET else None)


def sentence(found, hosts, quiet=None):
    """The estimate in words. found: seconds, or None; quiet: those without other programs, where there are any."""
    if found is None:
        return (
            "How long this takes is not known: neither this machine nor the course's authors have graded these units"
            " before."
        )
    other = f"; without the other programs that use this machine now, {readable(quiet)}" if quiet else ""
    return (
        f"Estimate: {readable(found)} on"
        f" {counted(sum(hosts), 'engine')}{f' of {len(hosts)} hosts' * (len(hosts) > 1)}{other}."
    )


def at_site(name, start=None):
    """(engines of each host, seconds until engines run) of a site: as many as its nodes have cores, and what its last
    job of engines took, if `start` is None."""
    return sites.read(name).ncpus, remembered.read()["queues"].get(name) if start is None else start


def readable(found):
    """Seconds in words: "140 s", "12 min", "3.4 h"."""
    return f"{found:.0f} s" if found < 200 else f"{found / 60:.0f} min" if found < 6000 else f"{found / 3600:.1f} h"


def table(students, engines, per_host, start=None, spin=None):
    """Lines: the time to grade classes that hand in all units, on clusters of engines. start: seconds until a cluster's
    engines run; spin: of this machine."""
    known = remembered.read(spin)
    if start is not None:
        known["start"] += start
    all_kinds = (
        ((unit, number, gaps), ranks)
        for unit, parts in UNITS.items()
        for number, part in enumerate(parts)
        for ranks, gaps in work.by_ranks(part)
    )
    kinds = [key for key in all_kinds if name(key[0]) in known["pieces"]]
    rows = [("students", *(f"{count} engines" for count in engines))]
    for number in students:
        rows.append(
            (str(number), *(readable(seconds_of(kinds * number, _hosts(count, per_host), known)) for count in engines))
        )
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]


def _hosts(engines, per_host):
    return [per_host] * (engines // per_host) + [engines % per_host] * (engines % per_host > 0)
