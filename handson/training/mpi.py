"""The start of MPI: both tracks import mpi4py.MPI here, so that no rank waits for ever for a rank that can't start."""

import signal

MEETING = 120  # seconds for all ranks to start


def start():
    """Import mpi4py.MPI, which meets the other ranks. A rank that has waited MEETING seconds is ended by SIGALRM, for MPI has no
    limit of its own; mpiexec then ends the others."""
    signal.setitimer(signal.ITIMER_REAL, MEETING)
    from mpi4py import MPI

    signal.setitimer(signal.ITIMER_REAL, 0)
    return MPI
