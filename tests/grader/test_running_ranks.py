"""Whatever code does in a box, there is an answer in time that says what, nothing stays behind, and the next one finds
the box as before."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy
import psutil
import pytest
from loaded import process_of
from node_jobs import holders
from waiting import wait_until

from grader import sandbox
from grader.sandbox import Limits, SandboxFault, Server, cgroups, client, landlock, layers_in_force
from grader.verdict import DEADLOCK, ERROR, KILLED, OUT_OF_MEMORY, TIMEOUT
from handson import linux

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(cpu_seconds=1, wall_seconds=20, memory_bytes=512 << 20)
SANDBOX = sandbox.interpreter_paths()
CONFINED = pytest.param(
    SANDBOX, id="confined", marks=pytest.mark.skipif(not sandbox.strong(), reason=sandbox.missing())
)
both = pytest.mark.parametrize("readable", [pytest.param(None, id="plain"), CONFINED])
LANDLOCK_KEEPS_SIGNALS = layers_in_force.works(landlock.abi) and landlock.abi() >= 6
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind(tmp_path_factory):
    """After all that goes wrong here, no folder of a run is left."""
    room = tmp_path_factory.mktemp("room")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(room))
        yield
    assert not list(room.iterdir())


@pytest.fixture
def run(server):
    def run(name, *arguments, ranks=1, limits=LIMITS, readable=None):
        return server.run(f"tests.grader.misbehaving:{name}", arguments, ranks, limits, readable).ranks

    before = process_of(server)
    yield run
    assert process_of(server) == before
    wait_until(lambda: not before.children(recursive=True), "no process is left", 10)


@both
def test_every_rank_gets_its_number_and_the_arguments(run, readable):
    found = [rank.observations for rank in run("behave", 5, {"a": numpy.arange(3)}, ranks=3, readable=readable)]
    assert [(one["rank"], one["ranks"]) for one in found] == [(0, 3), (1, 3), (2, 3)]
    assert found[2]["arguments"][0] == 5 and list(found[2]["arguments"][1]["a"]) == [0, 1, 2]


@both
def test_ranks_run_on_the_cores_that_are_theirs(run, server, monkeypatch, readable):
    there = sorted(os.sched_getaffinity(0))
    for cores in (there[-1:], there):
        monkeypatch.setattr(server, "cores", tuple(cores))
        assert [rank.observations for rank in run("cores", ranks=2, readable=readable)] == [cores, cores]


@both
def test_an_endless_loop_ends_with_its_cpu_time(run, readable):
    (rank,) = run("loop", readable=readable)
    assert rank.status == TIMEOUT
    assert "never end" in rank.message


def test_a_rank_that_the_kernel_ends_for_its_cpu_time_says_where_it_was(run):
    (rank,) = run("end_by_signal", signal.SIGXCPU)
    assert rank.status == TIMEOUT
    assert "never end" in rank.message


def test_a_wait_for_something_else_than_ranks_is_no_deadlock(run):
    (rank,) = run("sleep")
    assert rank.status == TIMEOUT
    assert "never happens" in rank.message


@both
def test_a_deadlock_names_the_collective_and_who_waits(run, readable):
    waiting, done, _ = run("wait_alone", ranks=3, readable=readable)
    assert (waiting.status, waiting.waiting) == (DEADLOCK, "all_reduce")
    assert (done.status, done.waiting) == (None, "")


@both
def test_a_rank_that_computes_while_others_wait_is_no_deadlock(server, readable):
    outcome = server.run(
        "tests.grader.misbehaving:burn_then_meet", [2.5], 4, Limits(cpu_seconds=6, wall_seconds=30), readable
    )
    assert outcome.observations == [6.0] * 4, outcome
    assert 2.5 <= outcome.cpu_seconds < 4  # three ranks wait, and only look for messages now and then


@both
def test_a_rank_that_leaves_is_told_from_those_that_wait_for_it(run, readable):
    first, second = run("leave", ranks=2, readable=readable)
    assert (second.status, second.message) == (
        KILLED,
        "the process ended itself with exit status 7 before your code had finished",
    )
    assert (first.status, first.message) == (KILLED, "this rank was stopped, because another rank had failed")


@both
@pytest.mark.parametrize("then", ["behave", "sleep", "leave"])
def test_all_cpu_time_is_counted_however_ranks_end(server, then, readable):
    outcome = server.run("tests.grader.misbehaving:burn", [0.4, then], 2, Limits(cpu_seconds=20), readable)
    # not twice; forking and ending ranks takes some hundredths, and more on a busy machine
    assert 0.8 <= outcome.cpu_seconds < 1.2


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [("crash", (), "Segmentation fault"), ("end_by_signal", (signal.SIGRTMIN + 3,), "signal 37")],
)
def test_a_crash_is_told_by_its_signal(run, name, arguments, says):
    (rank,) = run(name, *arguments)
    assert rank.status == KILLED
    assert says in rank.message


@pytest.mark.parametrize(
    ("name", "says"),
    [("quit", "SystemExit: 3"), ("interrupt", "KeyboardInterrupt"), ("foreign", "object can't be sent")],
)
def test_exceptions_of_any_kind_are_errors_in_the_code(run, name, says):
    (rank,) = run(name)
    assert rank.status == ERROR
    assert says in rank.message


@both
def test_a_memory_blow_up_is_called_by_its_name(run, readable):
    (rank,) = run("grow", limits=Limits(cpu_seconds=20, memory_bytes=512 << 20), readable=readable)
    assert (rank.status, rank.message) == (
        OUT_OF_MEMORY,
        "your code needs more memory than the 512 MiB that it may use",
    )


def test_a_flood_of_output_is_cut_in_the_middle_and_says_so(run):
    (rank,) = run("flood", limits=Limits(cpu_seconds=20))
    assert rank.status is None
    assert len(rank.output) < 10_000
    assert rank.output.startswith("the beginning\n") and rank.output.endswith("the end\n")
    assert "bytes cut ...]" in rank.output


@pytest.mark.parametrize(
    ("name", "says"), [("huge", "more than 4,194,304"), ("objects", "arrays of object cannot be sent")]
)
def test_observations_that_can_not_be_sent_are_refused(run, name, says):
    (rank,) = run(name)
    assert rank.status == ERROR
    assert says in rank.message


@both
def test_bytes_that_are_no_message_are_an_error(run, readable):
    (rank,) = run("write_everywhere", readable=readable)
    assert rank.status == ERROR
    assert "can't be used" in rank.message


@pytest.mark.parametrize("answer", [[], {}, 5, {"status": []}, {"status": "passed"}, {"status": numpy.zeros(2)}])
def test_an_answer_of_its_own_earns_a_rank_nothing(run, answer):
    (rank,) = run("forge", answer)
    assert rank.status in (ERROR, KILLED, TIMEOUT) and "another rank" not in rank.message


@pytest.mark.skipif(not LANDLOCK_KEEPS_SIGNALS, reason="Landlock keeps signals apart from Linux 6.12 on")
@both
def test_a_rank_that_kills_another_gets_no_further(run, readable):
    first, second = run("kill_peer", ranks=2, readable=readable)
    assert {first.status, second.status} <= {KILLED, ERROR}
    assert "PermissionError" in first.message


@both
@pytest.mark.parametrize("name", ["kill_parent", "kill_grandparent"])
def test_killing_what_watches_it_is_of_no_use(run, name, readable):
    (rank,) = run(name, readable=readable)
    assert rank.status == KILLED or rank.message.startswith(("PermissionError", "FileNotFoundError"))


@both
def test_a_rank_can_not_kill_itself_with_sigkill_so_whoever_does_is_somebody_else(run, readable):
    (rank,) = run("end_by_signal", signal.SIGKILL, readable=readable)
    assert (rank.status, rank.message) == (ERROR, "PermissionError: [Errno 1] Operation not permitted")


@pytest.mark.parametrize("depth", [1, 2, 3], ids=["box", "init", "rank"])
def test_a_sigkill_that_the_box_has_not_sent_is_the_graders_fault(run, server, depth):
    """As the kernel sends it where memory is short, perhaps for what another student's code took."""
    started = process_of(server)
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(run, "sleep")
        wait_until(lambda: len(started.children(recursive=True)) == 3, "box, init and a rank run")
        for _ in range(depth):
            (started,) = started.children()
        started.kill()
        with pytest.raises(SandboxFault, match="the system killed"):
            outcome.result()


@both
def test_memory_is_bounded_for_all_processes_of_a_run_together(run, readable):
    (rank,) = run("swarm", 115, 60 << 20, limits=Limits(cpu_seconds=20, memory_bytes=256 << 20), readable=readable)
    assert (rank.status, rank.message) == (
        OUT_OF_MEMORY,
        "all processes together need more memory than the 512 MiB that they may use",
    )


def test_much_from_all_ranks_is_their_fault_and_not_the_boxs(run):
    found = run("forge_growing", ranks=4, limits=Limits(cpu_seconds=20))
    # those that still send when the first one is refused are ended
    assert {rank.status for rank in found} <= {ERROR, KILLED}
    assert any("more than 4,194,304" in rank.message for rank in found)


def test_a_thread_that_never_ends_harms_nobody(run):
    (rank,) = run("leave_a_thread")
    assert rank.observations == 1


@pytest.mark.parametrize("name, arguments", [("start_threads", [100]), ("abort_for_a_thread", [])])
def test_a_thread_that_cannot_be_started_is_named(name, arguments, run):
    (rank,) = run(name, *arguments, limits=replace(LIMITS, cpu_seconds=5))
    assert rank.status in (ERROR, KILLED)
    assert "could not start one more thread" in rank.message
    assert "512 MiB" in rank.message


def test_daemons_end_with_the_run(run):
    (rank,) = run("leave_a_daemon")
    wait_until(lambda: not psutil.pid_exists(rank.observations), "the daemon has ended", 10)


CALLER = """
import sys
from grader.sandbox import Server
server = Server()
server.run("tests.grader.misbehaving:behave")
print(server.process.pid, flush=True)
server.run("tests.grader.misbehaving:" + sys.argv[1], ranks=2)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_when_its_caller_ends_all_end_with_it(number):
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, "loop"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as caller:
        server = psutil.Process(int(caller.stdout.readline()))
        wait_until(lambda: len(server.children(recursive=True)) == 4, "box, init and two ranks run")
        processes = [server, *server.children(recursive=True)]
        caller.send_signal(number)
        _, alive = psutil.wait_procs(processes, 5)
        assert not alive
        assert caller.wait(5) == -number


def test_a_server_whose_libraries_cannot_be_imported_says_so_each_time():
    server = Server(("tests.grader.unloadable",))
    try:
        for _ in range(2):
            with pytest.raises(SandboxFault, match=r"unloadable cannot be imported \(ImportError: No module named"):
                server.run("tests.grader.misbehaving:behave")
    finally:
        server.stop()


def test_a_server_that_still_loads_libraries_ends_at_once():
    server = Server(("tests.grader.slow_to_load",))
    server.start()
    started = time.monotonic()
    server.stop()
    assert time.monotonic() - started < client.STOPPING / 2


GRADER = """
from grader import sandbox
from grader.sandbox import Server
Server(("tests.grader.misbehaving",)).run("tests.grader.misbehaving:loop", readable=sandbox.interpreter_paths())
"""


@pytest.mark.skipif(not sandbox.strong(), reason=sandbox.missing())
def test_graders_that_were_killed_leave_nothing_once_the_next_one_has_run(tmp_path, monkeypatch):
    """No process, no namespace, no folder, no control group."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    own, namespaces, holding, processes = networks([os.getpid()]), set(), set(), []
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", GRADER], cwd=ROOT, env=environment) as killed:
            wait_until(
                lambda: networks(process.pid for process in psutil.Process(killed.pid).children(recursive=True)) - own,
                "it runs",
            )
            processes += (below := psutil.Process(killed.pid).children(recursive=True))
            namespaces |= (new := networks(process.pid for process in below) - own)
            holding |= holders(new)
            killed.kill()
        wait_until(lambda: not any(linux.runs(process.pid) for process in processes), "no process is left", 10)
    assert holding and list(tmp_path.iterdir())
    wait_until(lambda: not holding & holders(namespaces), "no namespace is left", 10)

    def left_by_the_next_one():
        """What it does not remove: at once the folders, and the groups as soon as the last processes in them have
        ended, in the kernel, too."""
        server = Server()
        server.run("tests.grader.misbehaving:behave", readable=SANDBOX)
        server.stop()
        assert not list(tmp_path.iterdir())
        with contextlib.suppress(OSError):  # no groups may be created here
            groups = [
                int(group.name.removeprefix(cgroups.NAME))
                for folder, _ in cgroups.places()
                for group in folder.glob(f"{cgroups.NAME}*")
            ]
            return [
                pid for pid in groups if pid in {process.pid for process in processes} and not psutil.pid_exists(pid)
            ]

    wait_until(lambda: not left_by_the_next_one(), "no control group is left", 10)


def test_a_hundred_killed_ranks_leave_nothing(tmp_path, monkeypatch):
    """While the server goes on, no process, and so no namespace, and no file; when it has stopped, no folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server = Server(("tests.grader.misbehaving",))
    server.start()
    try:
        for _ in range(50):
            outcome = server.run("tests.grader.misbehaving:end_by_signal", [signal.SIGTERM], 2, readable=SANDBOX)
            assert {rank.status for rank in outcome.ranks} == {KILLED}
        wait_until(lambda: not psutil.Process(server.process.pid).children(recursive=True), "no rank is left", 10)
        assert not [path for path in tmp_path.rglob("*") if not path.is_dir()]
    finally:
        server.stop()
    assert not list(tmp_path.iterdir())


def networks(pids):
    """The network namespaces of processes."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
    return found
