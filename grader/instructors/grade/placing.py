"""Decides which engine runs which piece, and when. A piece with several ranks takes as many engines of one host; the
longest pieces run first; if an engine ends, another one runs its piece again."""

import itertools
import math
import time
from collections import Counter

from ipyparallel.error import EngineError

from grader.instructors.grade import work

TRIES = 3  # tries of a piece for which the grader fails
DEATHS = 10  # tries of a piece whose engine ends: another piece may have caused these ends
TICK = 0.2  # seconds between two looks at the engines, if nothing happens before
AHEAD = 8  # pieces that wait for each engine; the longest of them runs first


class ControllerLost(Exception):
    """The cluster's controller has ended, so no more results will come."""


class EnginesLost(Exception):
    """The cluster has no engine that works, and got no new one in time."""


class Placer:
    """Runs `pieces`, an iterator of grader.instructors.grade.work.Piece, on `engines`
    (grader.instructors.grade.ipp_cluster.Engines).

    `results` yields (piece, verdicts) in the order in which pieces finish. Pieces are taken from the iterator only when
    they are needed, so that the first submissions are finished and stored long before the last. Of the pieces taken,
    those that take longest run first; `seconds` has the time that each kind of piece took so far.
    """

    def __init__(self, engines, pieces, trusted=False, seconds=None, took=None):
        """took: gets what each piece has taken: {kind: [(seconds, engines, work.Cost), ...]}."""
        self.engines, self.trusted = engines, trusted
        self.took = {} if took is None else took
        self.seconds = {} if seconds is None else seconds
        self.pieces, self.waiting = iter(pieces), []
        self.running = {}  # engine -> (piece, AsyncResult, engines taken, since)
        self.tries, self.lost = {}, set()
        self.alone = None  # since when there has been no engine that works

    def results(self):
        while self._take() or self.running:
            if not self.engines.controller_alive():
                raise ControllerLost
            self._look_for_engines()
            found = [*self._collect(), *self._watch_engines()]
            self._place()  # before the results are stored, so that engines work meanwhile
            yield from found
            if self.running or self.waiting:
                self.engines.wait(TICK)

    def _look_for_engines(self):
        """Raise EnginesLost if there has been no engine for too long, not even one whose answer is waited for."""
        now = time.monotonic()
        if self.running or set(self.engines.ids()) - self.lost:
            self.alone = None
        elif self.alone is None:
            self.alone = now
        elif now - self.alone > self.engines.alone:
            raise EnginesLost

    def _take(self):
        """Take pieces from the iterator, and sort the waiting ones in the order in which they should run. Returns
        whether any are waiting."""
        missing = AHEAD * max(1, len(self.engines.ids())) - len(self.waiting)
        if missing <= 0:
            return True
        self.waiting += itertools.islice(self.pieces, missing)
        self.waiting.sort(key=lambda piece: (self._expected(piece), piece.ranks), reverse=True)
        return bool(self.waiting)

    def _expected(self, piece):
        """The seconds that a piece is expected to take. For a kind that has not run yet: infinite if it needs no heavy
        libraries, so that it runs while these are being loaded; else more for more ranks."""
        return self.seconds.get(piece.kind, 10.0 * piece.ranks if piece.heavy else math.inf)

    def _place(self):
        """Submit pieces to free engines. If a piece needs more engines than are free, it waits, and later pieces that
        need fewer run first."""
        hosts = {engine: self.engines.host(engine) for engine in self.engines.ids() if engine not in self.lost}
        taken = {engine for _, _, engines, _ in self.running.values() for engine in engines}
        free = [engine for engine, host in hosts.items() if host and engine not in taken]
        for piece in list(self.waiting):
            if free and (engines := chosen(piece.ranks, free, hosts)):
                self.waiting.remove(piece)
                self._submit(piece, engines)
                free = [engine for engine in free if engine not in engines]

    def _submit(self, piece, engines):
        """Submit a piece to the first of `engines`; the other ones stay idle, so that its ranks have their cores."""
        try:
            result = self.engines.submit(engines[0], work.run, piece, self.trusted, self.engines.cores(engines))
        except IndexError:  # ipyparallel's "No such engine": it has ended since we looked
            self.waiting.append(piece)
            return
        self.running[engines[0]] = piece, result, engines, time.monotonic()

    def _collect(self):
        for engine, (piece, result, taken, since) in list(self.running.items()):
            if result.ready():
                del self.running[engine]
                yield from self._take_in(piece, result, time.monotonic() - since, len(taken))
                self.engines.forget(result)
            elif time.monotonic() - since > work.patience(piece):
                self.lost.add(engine)
                self.engines.end(engine)
                del self.running[engine]
                yield from self._again(piece, f"the engine did not answer for {work.patience(piece):.0f} seconds")

    def _take_in(self, piece, result, seconds, engines):
        try:
            found = result.get(0)
            verdicts = [work.Verdict(**verdict) for verdict in found.verdicts]
        except EngineError:
            yield from self._again(piece, "its engine ended", DEATHS)
        except Exception as problem:  # the engine raised it
            yield from self._again(piece, _reason(problem))
        else:
            self.took.setdefault(piece.kind, []).append((seconds, engines, found.cost))
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
        """Put a piece back to run again; after `tries` tries, yield it as ungraded, with the reason `why`."""
        self.tries[piece] = self.tries.get(piece, 0) + 1
        if self.tries[piece] < tries:
            self.waiting.insert(0, piece)
        else:
            yield piece, work.ungraded(piece, why or "the grader failed")


def chosen(ranks, free, hosts):
    """The `free` engines that a piece takes, or None if it has to wait. hosts: {engine: host} of all engines; a host
    not yet known is None.

    All are on one host. They are one for each rank, but no more than the host with the most engines has. Of several
    hosts with enough free engines, the one with the fewest is chosen.
    """
    counts = Counter(hosts.values())
    unknown = counts.pop(None, 0)
    number = min(ranks, unknown + max(counts.values()))
    there = {}
    for engine in free:
        there.setdefault(hosts[engine], []).append(engine)
    enough = [engines for engines in there.values() if len(engines) >= number]
    return min(enough, key=len)[:number] if enough else None


def chosen_host(ranks, free):
    """The number of the host that `chosen` would take for `ranks` engines; free: how many are free on each host. None
    if none has enough."""
    enough = [(count, host) for host, count in enumerate(free) if count >= ranks]
    return min(enough)[1] if enough else None


def _reason(problem):
    return (
        f"{type(problem).__name__}:"
        f" {str(problem).strip().splitlines()[-1] if str(problem).strip() else 'no reason given'}"
    )
