"""When one rank fails, all end, at once and with a sentence that names it."""

import re
import subprocess
import sys
import sysconfig
import time

import handson.chainer  # noqa: F401

import pytest
from mpi_runs import mpiexec

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


def test_ranks_that_are_late_are_waited_for():
    process = ends(
        "create_communicator('naive')\nwith all_ranks.all_ranks_end_together():\n"
        "    time.sleep(0.3 * RANK)\n    print('done')"
    )
    assert (process.returncode, process.stderr, process.stdout.split()) == (0, "", ["done"] * 3)


STALLS = """
import handson.chainer
from handson.chainer.communicators import create_communicator
from handson.training import progress as watchdog
comm = create_communicator("naive")
watchdog.begin(1)
if comm.rank == 1:
    comm.bcast_obj(None)
else:
    comm.allgather(numbers := __import__("numpy").zeros(2))  # line 10
"""


def test_ranks_that_disagree_about_a_collective_end_and_say_where_each_of_them_stands(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(STALLS)
    command = [f"{sysconfig.get_path('scripts')}/mpiexec", "-n", "2", sys.executable, script]
    process = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert process.returncode and "Traceback" not in process.stderr, process.stderr
    zero, one = sorted(line for line in process.stderr.splitlines() if line.startswith("rank "))
    assert re.fullmatch(
        r"rank 0 on \S+ has finished no step for 1 s: it waits in train.py, line 10, in allgather", zero
    )
    assert re.fullmatch(r"rank 1 on \S+ has finished no step for 1 s: it waits in train.py, line 8, in bcast_obj", one)
