"""All ranks of an MPI run end together: when one fails, a sentence names it, and no other rank waits for it forever.

ChainerMN's ``create_communicator`` and CNTK's Communicator install this; ``with all_ranks_end_together():`` around a
script's main also covers sys.exit.
"""

import atexit
import contextlib
import sys
import time

from mpi4py import MPI

from handson.training import progress, rank_watcher, uncaught

_exit_limit = None  # seconds; None until installed


def install(exit_limit=progress.LIMIT + 30):
    """End all ranks at any uncaught error of this rank, from now on (see `uncaught`).

    A rank that finishes while other ranks run waits for them ``exit_limit`` seconds, because an MPI program cannot end
    on only some ranks.
    """
    global _exit_limit
    if MPI.COMM_WORLD.size > 1 and _exit_limit is None:
        uncaught.install()
        atexit.register(wait_for_the_others)
    _exit_limit = exit_limit


@contextlib.contextmanager
def all_ranks_end_together():
    """Context manager for a script's main: if a rank ends with an error, all ranks end with its status."""
    install()
    try:
        yield
    except SystemExit as error:
        if MPI.COMM_WORLD.size > 1 and error.code:
            uncaught.end(error)
        raise


def wait_for_the_others():
    """Wait for all ranks after this rank's work, before MPI ends. End all ranks if that takes too long."""
    if _exit_limit is None or MPI.Is_finalized():
        return
    if "torch.distributed" in sys.modules and sys.modules["torch.distributed"].is_initialized():
        uncaught.report(f"{rank_watcher.name()} ended before it had left the process group; all ranks end")
        uncaught.leave(1)
    everybody = MPI.COMM_WORLD.Ibarrier()
    until = time.monotonic() + _exit_limit
    while not everybody.Test():
        if time.monotonic() > until:
            uncaught.report(
                f"{rank_watcher.name()} has finished, but other ranks are still running {_exit_limit} s later: they"
                " may be waiting for it in a collective, so make all ranks run the same number of steps; all ranks"
                " end"
            )
            uncaught.leave(1)
        time.sleep(0.005)
