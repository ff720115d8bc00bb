"""Start MPI: both tracks import mpi4py.MPI here, so that no rank waits forever for a rank that cannot start."""

import os
import signal

from handson.training import leftovers, progress

# seconds for all ranks to start, on a busy machine; that ranks have ended is noticed earlier, see rank_sidecar
MEETING = 180


def start():
    """Import mpi4py.MPI, which meets the other ranks. MPI has no limit of its own: a rank that has waited MEETING
    seconds is ended by its watcher, which hears of SIGALRM even then; mpiexec then ends the others."""
    if os.environ.get("MPI_LOCALRANKID", "0") == "0":  # once on each node
        leftovers.remove()
    if progress.is_watched():
        signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, MEETING)
    from mpi4py import MPI

    signal.setitimer(signal.ITIMER_REAL, 0)
    progress.begin(patience=0)
    return MPI
