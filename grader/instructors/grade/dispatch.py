"""Assign pieces of work to the engines, through ipyparallel's load-balanced view, and repeat a piece if its engine ends
or the grader fails."""

import time
from collections import Counter
from contextlib import suppress
from itertools import islice
from pathlib import PurePath
from queue import Empty, SimpleQueue

from ipyparallel.error import EngineError

from grader.course import UNITS
from grader.instructors.grade import work

TRIES = 3  # attempts at a piece for which the grader fails
DEATHS = 10  # attempts at a piece whose engine ends, perhaps because of another piece
TICK = 1.0  # longest time in seconds between two checks of the engines and the controller
AHEAD = 4  # pieces per engine that are fetched at once; the longest of them run first
SUBMITTED = 2  # pieces per engine that ipyparallel has: one runs, and the next one is ready when it ends
LENGTH = {".ipynb": 0, ".sh": 1, ".py": 2}  # file types, from short to long checks; more ranks take longer


def results(engines, pieces, trusted=False):
    """Run `pieces`, an iterator of work.Piece, on `engines` (grader.instructors.grade.ipp_cluster.Engines), and yield
    (piece, verdicts) in the order in which they finish.

    Pieces are fetched from the iterator only when they are needed, so that the first submissions are finished and
    stored long before the last. Raises ControllerLost or EnginesLost.
    """
    pieces, waiting, running, tries, ended = iter(pieces), [], {}, Counter(), SimpleQueue()
    while True:
        number = max(1, len(engines.ids()))
        waiting = waiting or sorted(islice(pieces, AHEAD * number), key=_length, reverse=True)
        while waiting and len(running) < SUBMITTED * number:
            piece = waiting.pop(0)
            result = engines.submit(work.run, piece, trusted)
            running[result] = piece, time.monotonic()
            result.add_done_callback(ended.put)
        if not running:
            return
        engines.look()
        with suppress(Empty):
            result = ended.get(timeout=TICK)
            piece, since = running.pop(result)
            verdicts, why, most = _taken_in(result, time.monotonic() - since)
            if why:
                tries[piece] += 1
            if why and tries[piece] < most:
                waiting.append(piece)
            else:
                yield piece, work.ungraded(piece, why) if verdicts is None else verdicts


def _length(piece):
    return LENGTH[PurePath(UNITS[piece.unit][piece.part].file).suffix], piece.ranks


def _taken_in(result, seconds):
    """Return (verdicts or None, why the piece should run again or "", the largest number of attempts)."""
    try:
        verdicts = [work.Verdict(**verdict) for verdict in result.get(0)]
    except EngineError:
        return None, "its engine ended", DEATHS if seconds < work.PATIENCE else TRIES
    except Exception as problem:  # an error of the engine
        last = (str(problem).strip() or "no reason given").splitlines()[-1]
        return None, f"{type(problem).__name__}: {last}", TRIES
    failed = any(verdict.points is None for verdict in verdicts)
    return verdicts, "the grader failed" if failed else "", TRIES
