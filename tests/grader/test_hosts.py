"""A cluster of hosts that have fewer engines than a check has ranks. One machine plays both hosts."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import ipyparallel
import psutil
import pytest
from waiting import PATIENCE, wait_until, whole

from grader import sandbox
from grader.course import UNITS
from grader.instructors.grade import work
from grader.instructors.grade.ipp_cluster import Engines
from grader.instructors.grade.placing import Placer
from grader.instructors.known_answers import known, solved
from grader.verdict import DEADLOCK, PASSED

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not sandbox.strong(), reason=sandbox.missing())]
ROOT = Path(__file__).resolve().parents[2]
RANKS = 4


@pytest.fixture
def cluster(tmp_path):
    """One engine on each of two hosts, as far as they know: an Engines, and their processes by number."""
    processes = []

    def start(*arguments, **environment):
        command = [sys.executable, "-m", *arguments, f"--profile-dir={tmp_path}"]
        processes.append(
            subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
        )

    start("ipyparallel.controller", "--ip=127.0.0.1", "--IPController.db_class=NoDB", "--HeartMonitor.period=500")
    try:
        file = tmp_path / "security/ipcontroller-client.json"
        wait_until(lambda: whole(file, "}"), "the controller has written its file")
        for node in ("node1", "node2"):
            start("ipyparallel.engine", "--timeout=30", HANDSON_NODE=node)
        with ipyparallel.Client(str(file), timeout=60) as client:
            client.wait_for_engines(2, timeout=60, interactive=False)
            pids = client[:].apply_sync(os.getpid)
            engines = Engines(client, 2)
            threading.Thread(target=engines.listen, daemon=True).start()
            yield engines, dict(zip(client.ids, map(psutil.Process, pids)))
            engines.over.set()
    finally:
        family = [child for process in processes for child in psutil.Process(process.pid).children(recursive=True)]
        for process in reversed(processes):  # the controller last, which ends its own processes
            process.terminate()
            process.wait(20)
        _, alive = psutil.wait_procs(family, 10)
        assert not alive, "boxes end with their engine"


def graded(engines):
    """{student: verdicts} of a solution and of a deadlock, on checks of RANKS ranks."""
    unit, (place, part) = (
        "multi_gpu",
        next((place, part) for place, part in enumerate(UNITS["multi_gpu"]) if part.track == "pytorch"),
    )
    mutant = next(one for one in known(unit, "pytorch")[0] if one.get("status") == DEADLOCK)
    gaps = tuple(
        {check.gap for check in part.checks if any(case.get("ranks") for case in check.cases)}
        & {mutant["gap"], "split"}
    )
    # the deadlock first: it takes seconds
    texts = {"bob": solved(part.file, **{mutant["gap"]: mutant["code"]}), "ann": solved(part.file)}
    pieces = [work.Piece(student, "", unit, place, gaps, RANKS, text.encode()) for student, text in texts.items()]
    return {
        piece.student: [(one.gap, one.status, one.message) for one in found]
        for piece, found in Placer(engines, pieces).results()
    }


def test_a_check_of_more_ranks_than_each_host_has_engines_runs_on_one_host_and_again_when_its_engine_is_killed(cluster):
    engines, processes = cluster
    submitted, submit = [], engines.submit

    def note(engine, function, *arguments):
        submitted.append(engine)
        return submit(engine, function, *arguments)

    engines.submit = note
    undisturbed = graded(engines)
    assert sorted(engines.host(engine) for engine in submitted) == ["node1", "node2"], (
        "one check on each, at the same time"
    )
    assert {status for _, status, _ in undisturbed["ann"]} == {PASSED}
    assert DEADLOCK in {status for _, status, _ in undisturbed["bob"]}
    submitted.clear()
    killer = threading.Thread(target=kill_one, args=(list(processes.values()),))
    killer.start()
    assert graded(engines) == undisturbed
    killer.join()
    assert len(submitted) > 2, "one of them was done twice"


def kill_one(engines):
    """Kill the first engine on which all ranks run. They run for a moment only, for which wait_until would look too
    seldom."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for process in engines:
            if len(process.children(recursive=True)) >= 3 + RANKS:  # server, box, init and the ranks
                return process.kill()
    raise AssertionError("on no engine all ranks ran at once")
