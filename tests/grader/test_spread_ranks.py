"""Ranks of one check on several hosts: as if they were on one, and nobody else is there. The hosts are played by one."""

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import ipyparallel
import psutil
import pytest

from grader.box import BoxFault, Server, link, switch
from grader.course import UNITS
from grader.instructors.grade import work
from grader.instructors.grade.cluster import Engines
from grader.instructors.grade.placing import Placer
from grader.judging import judge
from grader.instructors.known_answers import known, solved
from grader.sandbox import Limits
from grader.sandbox.doctor import TUN, in_force, strong
from grader.verdict import DEADLOCK, FAILED, KILLED, PASSED, TIMEOUT

pytestmark = pytest.mark.skipif(not (strong() and TUN in in_force()), reason="ranks on several hosts need a sandbox and TUN devices")
ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(cpu_seconds=6, wall_seconds=30)
LIBRARIES = ("grader.probes.libraries", "tests.grader.misbehaving")
READABLE = [*work.readable(), ROOT / "tests"]
ENGINES = [2, 2]  # on each host
UNITS_OF_SEVERAL = [(unit, part) for unit in ("multi_gpu", "multi_node") for part in UNITS[unit] if part.track]


@contextmanager
def spread_over(server, other):
    """A Spread over two hosts: `server` is on the one that leads, `other` on the other."""
    listener, places = link.listen()
    key = secrets.token_bytes(32)
    follower = threading.Thread(target=switch.follow, args=(1, other, READABLE, places, key, 60))
    follower.start()
    try:
        with listener, switch.Spread(server, ENGINES, listener, key) as spread:
            yield spread
    finally:
        follower.join(20)
        assert not follower.is_alive(), "it goes on when the engine that leads is through"


@pytest.fixture(scope="module")
def other():
    server = Server(LIBRARIES)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def spread(server, other):
    with spread_over(server, other) as spread:
        yield spread


def run(spread, name, *arguments, limits=LIMITS):
    return spread.run(f"tests.grader.misbehaving:{name}", arguments, 4, limits, READABLE)


def children(server):
    return psutil.Process(server.process.pid).children(recursive=True)


def test_every_rank_is_somewhere():
    assert switch.divided(4, [2, 2]) == {0: [0, 1], 1: [2, 3]}
    assert switch.divided(4, [2, 1]) == {0: [0, 1, 2], 1: [3]}
    assert switch.divided(2, [3, 1]) == {0: [0, 1]}
    assert switch.divided(5, [1, 1, 1]) == {0: [0, 1], 1: [2, 3], 2: [4]}


def test_each_rank_gets_its_number_and_runs_on_its_host(spread, server, other):
    outcome = run(spread, "behave", 5)
    assert [(rank.observations["rank"], rank.observations["ranks"], rank.observations["arguments"]) for rank in outcome.ranks] == [
        (rank, 4, [5]) for rank in range(4)
    ]
    assert [rank.observations["pid"] for rank in outcome.ranks] == [2, 3, 2, 3], "two sandboxes of two"


def test_where_no_other_engine_can_come_all_ranks_run_on_one_host(server, monkeypatch):
    monkeypatch.setattr(switch, "GATHERING", 0.1)
    listener, _ = link.listen()
    with listener, switch.Spread(server, ENGINES, listener, bytes(32)) as spread:
        assert [rank.observations["pid"] for rank in run(spread, "behave").ranks] == [2, 3, 4, 5]


def test_ranks_reach_each_other_and_nothing_else(spread):
    peers = [(f"10.77.0.{1 + rank // 2}", 5000 + rank) for rank in range(4)]
    with socket.create_server(("", 0)) as outside:
        port = outside.getsockname()[1]
        hosts = [address for address, _ in link.listen()[1]] + ["10.77.0.77"]
        others = [(host, number) for host in hosts for number in (port, spread.listener.getsockname()[1])]
        outcome = run(spread, "reach", [*peers, *others])
    for rank, one in enumerate(outcome.ranks):
        assert one.status is None, one
        assert one.observations["own"] == [f"10.77.0.{1 + rank // 2}", "127.0.0.1"]
        assert one.observations["found"][:4] == ["reached"] * 4
        assert "reached" not in one.observations["found"][4:]


def test_a_rank_that_computes_while_others_wait_on_another_host_is_no_deadlock(spread):
    outcome = run(spread, "burn_then_meet", 2.5)
    assert outcome.observations == [6.0] * 4, outcome
    assert 2.5 <= outcome.cpu_seconds < 3.5


def test_a_deadlock_is_told_with_the_collective_and_who_never_came(spread):
    waiting, *others = run(spread, "wait_alone").ranks
    assert (waiting.status, waiting.waiting) == (DEADLOCK, "all_reduce")
    assert [rank.status for rank in others] == [None] * 3


def test_a_rank_that_leaves_is_told_from_those_on_all_hosts_that_wait_for_it(spread):
    *others, last = run(spread, "leave").ranks
    assert last.message == "its process ended itself with exit status 7 before the code had finished"
    assert {(rank.status, rank.message) for rank in others} == {(KILLED, "it was stopped, since another rank had failed")}


def test_an_endless_loop_ends_with_the_cpu_time_of_all_ranks_together(spread):
    outcome = run(spread, "loop", limits=Limits(cpu_seconds=2, wall_seconds=60))
    assert {rank.status for rank in outcome.ranks} == {TIMEOUT}
    assert 1.8 <= outcome.cpu_seconds < 6  # ranks go on for half a second to say where they are


@pytest.mark.parametrize("address", ["10.77.0.2", "10.77.0.77"])
def test_a_flood_of_packets_ends_with_its_cpu_time(spread, address):
    outcome = run(spread, "flood_network", address, limits=Limits(cpu_seconds=2, wall_seconds=60))
    assert {rank.status for rank in outcome.ranks} == {TIMEOUT}, outcome
    assert run(spread, "burn_then_meet", 0.0).observations == [6.0] * 4


def test_all_cpu_time_is_counted(spread):
    assert 0.8 <= run(spread, "burn", 0.2, "behave").cpu_seconds < 0.95


def told(unit, part, server, code):
    only = type(part)(part.file, part.track, tuple(check for check in part.checks if not code or check.gap in code))
    verdicts = judge(unit, (only,), lambda file: solved(file, **code), server, readable=READABLE, seed=7)
    return [(verdict.gap, verdict.check, verdict.status, verdict.points, verdict.message) for verdict in verdicts]


@pytest.mark.parametrize(("unit", "part"), UNITS_OF_SEVERAL, ids=lambda one: getattr(one, "track", one))
def test_verdicts_are_those_of_one_host(unit, part, spread, server):
    answers = [{}]
    for status in (DEADLOCK, FAILED):
        answers += [{one["gap"]: one["code"]} for one in known(unit, part.track)[0] if one.get("status", FAILED) == status][:1]
    for code in answers:
        found = told(unit, part, spread, code)
        assert found == told(unit, part, server, code)
        assert {status for _, _, status, _, _ in found} == {PASSED} or code


@pytest.mark.parametrize("victim", ["server", "box"])
def test_when_a_host_is_lost_the_check_is_no_verdict_and_nothing_is_left(server, victim):
    other = Server(LIBRARIES)
    with spread_over(server, other) as spread:
        run(spread, "behave")
        timer = threading.Thread(target=lambda: (until(lambda: len(children(other)) >= 4), victim_of(other, victim).kill()))
        timer.start()
        if victim == "box":
            assert {rank.status for rank in run(spread, "sleep").ranks} == {KILLED}
        else:
            with pytest.raises(BoxFault):
                run(spread, "sleep")
        timer.join()
        until(lambda: not children(server))
    other.stop()


def victim_of(server, name):
    process = psutil.Process(server.process.pid)
    return process if name == "server" else process.children()[0]


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def test_who_does_not_know_the_key_leads_nobody_and_follows_nobody(server):
    listener, places = link.listen()
    key, wrong = secrets.token_bytes(32), secrets.token_bytes(32)
    stranger = threading.Thread(target=lambda: pytest.raises(link.Lost, link.connect, places[:1], wrong))
    stranger.start()
    with pytest.raises(link.Lost, match="key"):
        link.accept(listener, key)
    stranger.join()
    listener.close()
    with pytest.raises(link.Lost, match="can't be reached"):
        link.connect(places[:1], key)


@pytest.fixture
def cluster(tmp_path):
    """Engines on two hosts, two on each, as far as they know: an Engines, and their processes by number."""
    processes = []

    def start(*arguments, **environment):
        command = [sys.executable, "-m", *arguments, f"--profile-dir={tmp_path}"]
        processes.append(subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stderr=subprocess.DEVNULL))

    start("ipyparallel.controller", "--ip=127.0.0.1", "--IPController.db_class=NoDB", "--HeartMonitor.period=500")
    try:
        file = tmp_path / "security/ipcontroller-client.json"
        until(file.exists)
        for node in ("node1", "node1", "node2", "node2"):
            start("ipyparallel.engine", "--timeout=30", HANDSON_NODE=node)
        with ipyparallel.Client(str(file), timeout=60) as client:
            client.wait_for_engines(4, timeout=60, interactive=False)
            pids = client[:].apply_sync(os.getpid)
            engines = Engines(client, 4)
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
    """{student: verdicts} of a solution and of a deadlock, on checks of four ranks."""
    unit, (place, part) = "multi_gpu", next((place, part) for place, part in enumerate(UNITS["multi_gpu"]) if part.track == "pytorch")
    mutant = next(one for one in known(unit, "pytorch")[0] if one.get("status") == DEADLOCK)
    gaps = tuple({check.gap for check in part.checks if any(case.get("ranks") for case in check.cases)} & {mutant["gap"], "split"})
    texts = {"ann": solved(part.file), "bob": solved(part.file, **{mutant["gap"]: mutant["code"]})}
    pieces = [work.Piece(student, "", unit, place, gaps, 4, text.encode()) for student, text in texts.items()]
    return {piece.student: [(one.gap, one.status, one.message) for one in found] for piece, found in Placer(engines, pieces).results()}


def test_pieces_are_spread_over_the_engines_of_a_cluster_and_done_again_when_one_is_killed(cluster):
    engines, processes = cluster
    submitted, submit = [], engines.submit

    def note(engine, function, *arguments):
        submitted.append((engine, function))
        return submit(engine, function, *arguments)

    engines.submit = note
    undisturbed = graded(engines)
    assert [function for _, function in submitted] == [work.run, work.follow] * 2
    assert {status for _, status, _ in undisturbed["ann"]} == {PASSED}
    assert DEADLOCK in {status for _, status, _ in undisturbed["bob"]}
    for does in (work.follow, work.run):
        submitted.clear()
        killer = threading.Thread(target=kill_one, args=(does, submitted, processes))
        killer.start()
        assert graded(engines) == undisturbed
        killer.join()
        assert len(submitted) > 4, "one of them was done twice"


def kill_one(does, submitted, processes):
    """Kill the first engine that does something, in the midst of it."""
    until(lambda: any(function == does for _, function in submitted))
    process = processes[next(engine for engine, function in submitted if function == does)]
    until(lambda: len(process.children(recursive=True)) >= 4)  # server, box, init and a rank
    process.kill()
