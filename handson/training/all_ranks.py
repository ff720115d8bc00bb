"""All ranks of an MPI run end together: when one fails, a sentence names it, and no rank waits for it for ever.

ChainerMN's ``create_communicator`` and CNTK's Communicator install this; ``with all_ranks_end_together():`` around a
script's main also covers sys.exit.
"""

import atexit
import contextlib
import os
import sys
import time
import traceback

from mpi4py import MPI

from handson.cluster.nodes import current_node
from handson.errors import OneSentence, Stopped, in_a_sentence
from handson.training import progress

COME = 5  # seconds in which all ranks come to a problem that one has come to, on a busy machine
_exit_limit = None  # seconds; None until installed


def install(exit_limit=progress.LIMIT + 30):
    """Makes every uncaught error of this rank end all ranks: OneSentence with its status, any other error with a
    traceback and status 1.

    A rank that comes to its end while others go on waits for them ``exit_limit`` seconds: an MPI program cannot end
    alone.
    """
    global _exit_limit
    if MPI.COMM_WORLD.size > 1 and _exit_limit is None:
        sys.excepthook = lambda kind, error, trace: _end_all(error)
        atexit.register(wait_for_the_others)
    _exit_limit = exit_limit


@contextlib.contextmanager
def all_ranks_end_together():
    """Around a script's main: when one rank ends with an error, all ranks end with its status."""
    install()
    try:
        yield
    except BaseException as error:
        if MPI.COMM_WORLD.size == 1 or isinstance(error, SystemExit) and not error.code:
            raise
        _end_all(error)


def _end_all(error):
    error = in_a_sentence(error)
    if isinstance(error, Stopped) and progress.is_watched():
        os._exit(error.status)
    world = MPI.COMM_WORLD
    here = f"rank {world.rank} of {world.size} on {current_node()}"
    of_all = getattr(error, "on_all_ranks", False)
    if of_all and world.rank > 0:
        time.sleep(COME)  # rank 0 ends all ranks meanwhile, if it comes to the same problem
    if isinstance(error, OneSentence):
        _say(f"{error}" if of_all and world.rank == 0 else f"{here}: {error}")
    elif isinstance(error, SystemExit):
        _say(f"{here} ended with {error.code!r}; all ranks end")
    else:
        _say(
            "".join(traceback.format_exception(error))
            + f"{here} failed with {type(error).__name__}: {error}; all ranks end"
        )
    world.Abort(_status(error))


def _status(error):
    if isinstance(error, OneSentence):
        return error.status
    return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1


def wait_for_the_others():
    """At the end of a rank's work, before MPI ends: end all ranks if the others don't come to theirs in time."""
    if _exit_limit is None or MPI.Is_finalized():
        return
    everybody = MPI.COMM_WORLD.Ibarrier()
    until = time.monotonic() + _exit_limit
    while not everybody.Test():
        if time.monotonic() > until:
            world = MPI.COMM_WORLD
            _say(
                f"rank {world.rank} of {world.size} on {current_node()} has come to its end, but {_exit_limit} s later"
                " other ranks have not: they may be waiting for it in a collective, so make all ranks do the same"
                " number of steps; all ranks end"
            )
            world.Abort(1)
        time.sleep(0.005)


def _say(sentence):
    """To standard error, after what this rank has printed, in one piece: other ranks write there too."""
    sys.stdout.flush()
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()
    time.sleep(0.2)  # an abort follows, after which mpiexec reads no more output
