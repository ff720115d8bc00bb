"""Do the ranks of a data-parallel run still have the same parameters? A run without all-reduce ends as well as any
other, and looks fastest.

The comparison costs one small message after steps 1, 2, 4, 8, ...; `results.report` writes what it has found.
"""

import functools
import sys

from handson.profiling import recording
from handson.training import identity

problem = ""  # of this run, in words; the same on all ranks


@functools.cache
def expected():
    """Whether the running script is one of the lecture's, whose ranks must stay equal. A recorded run is not compared,
    since its messages are looked at."""
    unit, script, _ = identity.of(sys.argv[0])
    return identity.training(unit, script) == identity.LECTURE and not recording.plan()


def due(step):
    """Whether the ranks are to be compared after this step, counted from 1."""
    return step & (step - 1) == 0 and not problem and expected()


def compare(checksums, step):
    """Note which rank's parameters differ after a step. checksums: of the parameters of each rank."""
    global problem
    other = next((rank for rank, of_rank in enumerate(checksums) if of_rank != checksums[0]), None)
    if other is not None:
        problem = (
            f"rank {other}'s parameters differ from rank 0's after step {step}: are the gradients averaged over the"
            " ranks in each step?"
        )
