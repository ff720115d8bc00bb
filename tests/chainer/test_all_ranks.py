"""When one rank fails, all end, at once and with a sentence that names it."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time

import handson.chainer  # noqa: F401

import pytest
from mpi_runs import mpiexec
from waiting import wait_until, whole

from handson import linux

WAIT = "\nMPI.COMM_WORLD.Barrier()\n"
pytestmark = pytest.mark.thorough


def ends(source, ranks=3):
    before = time.monotonic()
    process = mpiexec(ranks, source)
    assert time.monotonic() - before < 20
    return process


def test_a_rank_that_raises_ends_all():
    process = ends("create_communicator('naive')\nif RANK == 1:\n    raise KeyError('lr')" + WAIT)
    assert process.returncode == 1
    assert "rank 1 on " in process.stderr and "failed with KeyError: 'lr'; all ranks end" in process.stderr
    assert process.stderr.count("Traceback") == 1


@pytest.mark.parametrize("more", ["", ", on_all_ranks=True"])
def test_a_users_mistake_is_one_sentence(more):
    """Also where the others do not come to what is said to be on all ranks."""
    process = ends(
        "create_communicator('naive')\nuncaught.COME = 0.2\nif RANK == 2:\n"
        f"    from handson.errors import TrackError\n    raise TrackError('no such file: x'{more})" + WAIT
    )
    assert process.returncode == 2 and "rank 2 on " in process.stderr and ": no such file: x\n" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("how, status", [("sys.exit(3)", 3), ("sys.exit('no more')", 1), ("raise ValueError('x')", 1)])
def test_whatever_a_rank_ends_with_within_the_block_all_end_with(how, status):
    process = ends(
        f"with all_ranks.all_ranks_end_together():\n    if RANK == 1:\n        {how}\n    MPI.COMM_WORLD.Barrier()"
    )
    assert process.returncode == status and "rank 1 on " in process.stderr and "all ranks end" in process.stderr


def test_a_rank_that_stops_before_the_others_is_named():
    """The usual cause: uneven shares of the data, so that one rank makes a step less."""
    process = ends("all_ranks.install(exit_limit=0.5)\nif RANK == 1:\n    sys.exit(0)" + WAIT)
    assert process.returncode == 1
    assert "rank 1 on " in process.stderr
    assert "the same number of steps" in process.stderr


def test_a_rank_that_is_killed_ends_all():
    process = ends(
        "import signal\ncreate_communicator('naive')\nif RANK == 1:\n    os.kill(os.getpid(), signal.SIGKILL)" + WAIT
    )
    assert process.returncode != 0 and "Traceback" not in process.stderr
    assert re.search(r"^rank 1 on \S+ was killed by SIGKILL; all ranks end$", process.stderr, re.MULTILINE), (
        process.stderr
    )


def test_ranks_that_are_late_are_waited_for():
    process = ends(
        "create_communicator('naive')\nwith all_ranks.all_ranks_end_together():\n"
        "    time.sleep(0.3 * RANK)\n    print('done')"
    )
    assert (process.returncode, process.stderr, process.stdout.split()) == (0, "", ["done"] * 3)


STALLS = """
import os, signal, sys
if os.environ["PMI_RANK"] == "1" and sys.argv[1] == "ends before MPI":
    sys.exit("no data here")
import handson.chainer
from handson.chainer.communicators import create_communicator
from handson.training import progress as watchdog
comm = create_communicator("naive")
watchdog.begin(1)
if comm.rank == 1:
    sys.argv[1] == "stops" and os.kill(os.getpid(), signal.SIGSTOP)
    comm.bcast_obj(None)
else:
    comm.allgather(numbers := __import__("numpy").zeros(2))  # line 14
"""


def stalled(tmp_path, how, *mpiexec):
    """The lines about ranks that make no progress for a second."""
    script = tmp_path / "train.py"
    script.write_text(STALLS)
    begin = time.monotonic()
    command = [f"{sysconfig.get_path('scripts')}/mpiexec", *mpiexec, "-n", "2", sys.executable, script, how]
    process = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert process.returncode and time.monotonic() - begin < 60 and "Traceback" not in process.stderr, process.stderr
    return sorted(line for line in process.stderr.splitlines() if line.startswith("rank "))


def test_ranks_that_disagree_about_a_collective_end_and_say_where_each_of_them_stands(tmp_path):
    zero, one = stalled(tmp_path, "disagrees")
    assert re.fullmatch(
        r"rank 0 on \S+ has finished no step for 1 s: it waits in train.py, line 14, in allgather", zero
    )
    assert re.fullmatch(r"rank 1 on \S+ has finished no step for 1 s: it waits in train.py, line 12, in bcast_obj", one)


def test_a_rank_that_is_stopped_is_named(tmp_path):
    zero, one = stalled(tmp_path, "stops")
    assert "line 14, in allgather" in zero
    assert re.search(r"for 1 s: it is stopped \(`kill -CONT \d+` would let it go on\)$", one)


def test_a_rank_that_ends_before_mpi_starts_ends_all_in_seconds(tmp_path):
    [zero] = stalled(tmp_path, "ends before MPI")
    assert zero.endswith("waits in vain for all ranks to start: another rank on this node has ended before; all ranks end")


def test_ranks_of_a_node_that_end_before_mpi_starts_end_all_in_seconds(tmp_path):
    """Nobody is left there to notice it, and mpiexec does not mind."""
    [zero] = stalled(tmp_path, "ends before MPI", "-launcher", "fork", "-hosts", "one,other", "-ppn", "1")
    assert zero.endswith("waits in vain for all ranks to start: all ranks of another node have ended before; all ranks end")


LOOPS = """
import os, sys
import handson.chainer
from mpi4py import MPI
open(f"{sys.argv[1]}/rank{MPI.COMM_WORLD.rank}", "w").write(f"{os.getpid()} {os.getppid()}\\n")
while True:
    MPI.COMM_WORLD.Barrier()
"""


def test_ranks_do_not_outlive_mpiexecs_own_process_on_their_node(tmp_path):
    """It is the parent of their watchers. On another node, mpiexec cannot end them without it."""
    process = subprocess.Popen(
        [f"{sysconfig.get_path('scripts')}/mpiexec", "-n", "2", sys.executable, "-c", LOOPS, tmp_path],
        stderr=subprocess.DEVNULL,
    )
    try:
        files = [tmp_path / "rank0", tmp_path / "rank1"]
        wait_until(lambda: all(map(whole, files)), "both ranks run")
        pids = [int(pid) for file in files for pid in file.read_text().split()]
        [proxy] = {linux.parent(watcher) for watcher in pids[1::2]}
        os.kill(proxy, signal.SIGKILL)
        wait_until(lambda: not any(map(linux.runs, pids)), "both ranks and their watchers have ended")
    finally:
        process.kill()
        process.wait()
