"""Start MPI: both tracks import mpi4py.MPI here, so that no rank waits forever for a rank that cannot start."""

import os
import signal

from handson.training import leftovers, progress

# seconds for all ranks to start, on a busy machine; rank_sidecar detects ranks that have ended earlier
MEETING = 180


def start():
    """Import mpi4py.MPI, which waits for the other ranks. MPI sets no time limit, so the watcher ends a rank that has
    waited MEETING seconds: it sees SIGALRM even then. mpiexec then ends the other ranks."""
    if os.environ.get("MPI_LOCALRANKID", "0") == "0":  # once on each node
        leftovers.remove()
    if progress.is_watched():
        signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, MEETING)
    from mpi4py import MPI

    signal.setitimer(signal.ITIMER_REAL, 0)
    progress.begin(patience=0)
    return MPI
