"""What is given to the engines, when, and how often: with engines that are played by the test, and with real ones."""

import os
import signal
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import asdict

import psutil
import pytest
from ipyparallel.error import EngineError
from waiting import PATIENCE

from answers.known import of_unit
from grader import sandbox
from grader.course import UNITS
from grader.exercises import solved
from grader.instructors.grade import dispatch, ipp_cluster, work
from grader.instructors.grade.ipp_cluster import ControllerLost
from grader.verdict import DEADLOCK, GRADER_FAULT, PASSED


class Result(Future):
    """An answer as ipyparallel gives it."""

    get = Future.result


class Engines:
    """Engines that answer at once: for each student with the next one of `answers`, at the end with no verdicts. An
    answer is a list, an error, or None for none."""

    def __init__(self, count=1, **answers):
        self.count, self.answers, self.log = count, answers, []

    def ids(self):
        return list(range(self.count))

    def submit(self, function, piece, trusted):
        self.log.append(piece.student)
        result, answer = Result(), (self.answers.get(piece.student) or [[]]).pop(0)
        if isinstance(answer, Exception):
            result.set_exception(answer)
        elif answer is not None:
            result.set_result(answer)
        return result

    def look(self):
        if not self.count:
            raise ControllerLost


def piece(student, ranks=1, part=0):
    return work.Piece(student, "", "single_gpu", part, ("device",), ranks, b"")


def done(engines, *students):
    return [(piece.student, verdicts) for piece, verdicts in dispatch.results(engines, map(piece, students))]


def test_every_piece_is_done_once():
    engines, students = Engines(2), [f"s{number}" for number in range(50)]
    assert sorted(done(engines, *students)) == sorted((student, []) for student in students)
    assert len(engines.log) == 50


def test_of_the_pieces_that_are_taken_at_once_the_longest_go_first():
    engines, kinds = Engines(1), [("notebook", 1, 3), ("script", 1, 0), ("job script", 1, 2), ("wide script", 2, 1)]
    list(dispatch.results(engines, [piece(*kind) for kind in kinds]))
    assert engines.log == ["wide script", "script", "job script", "notebook"]


def test_pieces_are_taken_and_submitted_as_they_are_needed():
    """So that the first submissions are stored long before the last, and another grader need not wait for long."""
    taken, engines = [], Engines(2, **{f"s{number}": [None] for number in range(2, 1000)})
    results = dispatch.results(engines, (taken.append(number) or piece(f"s{number}") for number in range(1000)))
    next(results), next(results)
    assert len(taken) <= 2 * dispatch.AHEAD and len(engines.log) - 1 <= 2 * dispatch.SUBMITTED


@pytest.mark.parametrize(("error", "tries"), [(OSError("fell over"), dispatch.TRIES), (EngineError(), dispatch.DEATHS)])
def test_what_fails_is_tried_again_and_at_last_ungraded_and_never_a_zero(error, tries):
    assert done(Engines(ann=[error] * (tries - 1) + [[]]), "ann") == [("ann", [])]
    engines = Engines(ann=[error] * 99)
    [(_, verdicts)] = done(engines, "ann")
    assert verdicts and all((verdict.status, verdict.points) == (GRADER_FAULT, None) for verdict in verdicts)
    assert verdicts[0].message in ("not graded: OSError: fell over", "not graded: its engine ended")
    assert len(engines.log) == tries


def test_a_piece_whose_engine_ends_after_its_patience_is_tried_less_often(monkeypatch):
    monkeypatch.setattr(work, "PATIENCE", 0)
    engines = Engines(ann=[EngineError()] * 99)
    assert len(done(engines, "ann")) == 1 and len(engines.log) == dispatch.TRIES


def test_a_fault_in_a_verdict_is_tried_again_and_then_told_as_it_is():
    [fault] = work.ungraded(piece("ann"), "the watcher does not answer")[:1]
    engines = Engines(ann=[[asdict(fault)]] * 99)
    assert done(engines, "ann") == [("ann", [fault])] and len(engines.log) == dispatch.TRIES


def test_without_a_controller_nothing_is_waited_for():
    with pytest.raises(ControllerLost):
        done(Engines(0, ann=[None]), "ann")


def test_an_engine_that_takes_too_long_for_a_piece_ends(monkeypatch):
    monkeypatch.setattr(work, "PATIENCE", 1)
    monkeypatch.setattr(work, "judge", lambda *arguments, **options: time.sleep(PATIENCE))
    engine = os.fork()
    if engine == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # as in an engine; pytest has a handler
        work.run(piece("ann"), trusted=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(engine, 0)[1]) == -signal.SIGALRM


def test_engines_have_a_core_each_where_there_are_as_many(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {4, 5})
    monkeypatch.setattr(ipp_cluster, "_started", lambda folder, *others: nullcontext(folder))
    for engines, cores in ((2, [(4,), (5,), ()]), (1, [(), (), ()])):
        with ipp_cluster.started(engines) as folder:
            monkeypatch.setenv(work.SHARED, folder)
            assert [work._core.__wrapped__() for _ in range(3)] == cores


@pytest.mark.thorough
@pytest.mark.skipif(not sandbox.strong(), reason=sandbox.missing())
def test_a_check_whose_engine_is_killed_while_its_ranks_run_is_done_again_elsewhere():
    place = next(place for place, part in enumerate(UNITS["multi_gpu"]) if part.track == "pytorch")
    part = UNITS["multi_gpu"][place]
    mistake = next(one for one in of_unit("multi_gpu", "pytorch")[0] if one.status == DEADLOCK)
    texts = {"bob": solved(part.file, **{mistake.gap: mistake.code}), "ann": solved(part.file)}
    pieces = [
        work.Piece(student, "", "multi_gpu", place, (mistake.gap,), 2, text.encode()) for student, text in texts.items()
    ]

    def graded(engines):
        results = dispatch.results(engines, pieces)
        return {piece.student: [(one.gap, one.status, one.message) for one in found] for piece, found in results}

    with ipp_cluster.started(2, libraries=()) as engines:  # each has boxes of its own
        undisturbed, before = graded(engines), engines.ids()
        assert {status for _, status, _ in undisturbed["ann"]} == {PASSED}
        assert DEADLOCK in {status for _, status, _ in undisturbed["bob"]}
        killer = threading.Thread(target=kill_one)
        killer.start()
        assert graded(engines) == undisturbed
        killer.join()
        assert engines.ids() != before


def kill_one():
    """Kill the first engine on which two ranks run. They run for a moment only, for which wait_until would look too
    seldom."""
    end = time.monotonic() + PATIENCE
    engines = [process for process in psutil.Process().children() if "ipyparallel.engine" in process.cmdline()]
    while time.monotonic() < end:
        for process in engines:
            if len(process.children(recursive=True)) >= 6:  # nanny, server, box, init and the ranks
                return process.kill()
    raise AssertionError("on no engine two ranks ran at once")
