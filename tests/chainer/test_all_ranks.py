"""When one rank fails, all end, at once and with a sentence that names it."""
import time

import handson.chainer  # noqa: F401
import pytest
from mpi_runs import mpiexec

WAIT = "\nMPI.COMM_WORLD.Barrier()\n"
pytestmark = pytest.mark.slow


def ends(source, ranks=3):
    before = time.monotonic()
    process = mpiexec(ranks, source)
    assert time.monotonic() - before < 20
    return process


def test_a_rank_that_raises_ends_all():
    process = ends("create_communicator('naive')\nif RANK == 1:\n    raise KeyError('lr')" + WAIT)
    assert process.returncode == 1
    assert "rank 1 of 3 on " in process.stderr and "failed with KeyError: 'lr'; all ranks end" in process.stderr
    assert process.stderr.count("Traceback") == 1


def test_a_users_mistake_is_one_sentence():
    process = ends("create_communicator('naive')\nif RANK == 2:\n"
                   "    from handson.errors import TrackError\n    raise TrackError('no such file: x')" + WAIT)
    assert process.returncode == 2 and "rank 2 of 3 on " in process.stderr and ": no such file: x\n" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("how, status", [("sys.exit(3)", 3), ("sys.exit('no more')", 1), ("raise ValueError('x')", 1)])
def test_whatever_a_rank_ends_with_within_the_block_all_end_with(how, status):
    process = ends(f"with all_ranks.all_ranks_end_together():\n    if RANK == 1:\n        {how}\n    MPI.COMM_WORLD.Barrier()")
    assert process.returncode == status and "rank 1 of 3 on " in process.stderr and "all ranks end" in process.stderr


def test_a_rank_that_stops_before_the_others_is_named():
    """The usual cause: uneven shares of the data, so that one rank makes a step less."""
    process = ends("all_ranks.install(exit_limit=0.5)\nif RANK == 1:\n    sys.exit(0)" + WAIT)
    assert process.returncode == 1 and "rank 1 of 3 on " in process.stderr and "the same number of steps" in process.stderr


def test_a_rank_that_is_killed_ends_all():
    process = ends("import signal\ncreate_communicator('naive')\nif RANK == 1:\n    os.kill(os.getpid(), signal.SIGKILL)" + WAIT)
    assert process.returncode != 0 and "Killed (signal 9)" in process.stdout + process.stderr


def test_ranks_that_are_late_are_waited_for():
    process = ends("create_communicator('naive')\nwith all_ranks.all_ranks_end_together():\n"
                   "    time.sleep(0.3 * RANK)\n    print('done')")
    assert (process.returncode, process.stderr, process.stdout.split()) == (0, "", ["done"] * 3)
