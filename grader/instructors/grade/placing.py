"""Which engine does what, when: a piece of several ranks takes as many engines of one host; the longest go first, and what an engine
that ended was doing is done again elsewhere."""

import itertools
import math
import time
from collections import Counter

from ipyparallel.error import EngineError

from grader.instructors.grade import work

TRIES = 3  # for a piece, when the grader fails
DEATHS = 10  # of engines that had the piece; one may be to blame for them
TICK = 0.2  # seconds, unless something happens before
AHEAD = 8  # pieces for each engine, among which the longest is chosen


class ControllerLost(Exception):
    """The cluster's controller has ended: nothing more will come from it."""


class Placer:
    """Does `pieces`, an iterator of grader.instructors.grade.work.Piece, on `engines` (grader.instructors.grade.cluster.Engines).

    `results` yields (piece, verdicts) as they come. Pieces are taken from the iterator as they are needed, so that the first
    submissions are finished, and kept, long before the last; which of those that have been taken goes first depends on `seconds`,
    what pieces of a kind took so far.
    """

    def __init__(self, engines, pieces, trusted=False, seconds=None):
        self.engines, self.trusted = engines, trusted
        self.seconds = {} if seconds is None else seconds
        self.pieces, self.waiting = iter(pieces), []
        self.running = {}  # engine -> (piece, AsyncResult, engines taken, since)
        self.tries, self.lost = {}, set()

    def results(self):
        while self._take() or self.running:
            if not self.engines.controller_alive():
                raise ControllerLost
            found = [*self._collect(), *self._watch_engines()]
            self._place()  # engines work while what was found is kept
            yield from found
            if self.running or self.waiting:
                self.engines.wait(TICK)

    def _take(self):
        """Keep some pieces waiting, in the order in which they should be done. Returns whether there are any."""
        missing = AHEAD * max(1, len(self.engines.ids())) - len(self.waiting)
        if missing <= 0:
            return True
        self.waiting += itertools.islice(self.pieces, missing)
        self.waiting.sort(key=lambda piece: (self._expected(piece), piece.ranks), reverse=True)
        return bool(self.waiting)

    def _expected(self, piece):
        """Seconds that a piece takes: the longest go first. Of those whose kind was never done, what can be done while libraries are loaded
        comes before all others, and then what has more ranks."""
        return self.seconds.get(piece.kind, 10.0 * piece.ranks if piece.heavy else math.inf)

    def _place(self):
        """Give free engines something to do. A piece for several waits for them; shorter ones for fewer go ahead meanwhile."""
        hosts = {engine: self.engines.host(engine) for engine in self.engines.ids() if engine not in self.lost}
        taken = {engine for _, _, engines, _ in self.running.values() for engine in engines}
        free = [engine for engine, host in hosts.items() if host and engine not in taken]
        for piece in list(self.waiting):
            if free and (engines := chosen(piece.ranks, free, hosts)):
                self.waiting.remove(piece)
                self._submit(piece, engines)
                free = [engine for engine in free if engine not in engines]

    def _submit(self, piece, engines):
        """Have the first of `engines` do a piece; the others are kept free for its ranks."""
        result = self.engines.submit(engines[0], work.run, piece, self.trusted, self.engines.cores(engines))
        self.running[engines[0]] = piece, result, engines, time.monotonic()

    def _collect(self):
        for engine, (piece, result, _, since) in list(self.running.items()):
            if result.ready():
                del self.running[engine]
                yield from self._take_in(piece, result, time.monotonic() - since)
                self.engines.forget(result)
            elif time.monotonic() - since > work.patience(piece):
                self.lost.add(engine)
                self.engines.end(engine)
                del self.running[engine]
                yield from self._again(piece, f"the engine did not answer for {work.patience(piece):.0f} seconds")

    def _take_in(self, piece, result, seconds):
        try:
            verdicts = [work.Verdict(**verdict) for verdict in result.get(0)]
        except EngineError:
            yield from self._again(piece, "its engine ended", DEATHS)
        except Exception as problem:  # what the engine raised
            yield from self._again(piece, _reason(problem))
        else:
            self.seconds[piece.kind] = 0.7 * self.seconds.get(piece.kind, seconds) + 0.3 * seconds
            if any(verdict.points is None for verdict in verdicts) and self.tries.get(piece, 0) + 1 < TRIES:
                yield from self._again(piece, "")
            else:
                yield piece, verdicts

    def _watch_engines(self):
        for engine in set(self.running) - set(self.engines.ids()):
            piece, result, _, _ = self.running[engine]
            if not result.ready():
                del self.running[engine]
                yield from self._again(piece, "its engine ended", DEATHS)
        self.engines.replace_lost()

    def _again(self, piece, why, tries=TRIES):
        """Put a piece back, or give it up after some tries."""
        self.tries[piece] = self.tries.get(piece, 0) + 1
        if self.tries[piece] < tries:
            self.waiting.insert(0, piece)
        else:
            yield piece, work.ungraded(piece, why or "the grader failed")


def chosen(ranks, free, hosts):
    """Which of the `free` engines a piece takes, or None if it has to wait. hosts: {engine: host} of all engines; None: not yet known.

    They are of one host, on which there are just enough: one for each rank, but no more than the host with the most engines has.
    """
    counts = Counter(hosts.values())
    unknown = counts.pop(None, 0)
    number = min(ranks, unknown + max(counts.values()))
    there = {}
    for engine in free:
        there.setdefault(hosts[engine], []).append(engine)
    enough = [engines for engines in there.values() if len(engines) >= number]
    return min(enough, key=len)[:number] if enough else None


def _reason(problem):
    return f"{type(problem).__name__}: {str(problem).strip().splitlines()[-1] if str(problem).strip() else 'no reason given'}"
