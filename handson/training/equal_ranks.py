"""Check that the ranks of a data-parallel run still have equal parameters. A run that lacks the all-reduce also
finishes, and is the fastest.

The comparison costs one small message after steps 1, 2, 4, 8, ...; `results.report` writes its result.
"""

import functools
import sys

from handson.profiling import recording
from handson.training import identity

problem = ""  # this run's problem, in words, which is the same on all ranks


@functools.cache
def expected():
    """Return whether the ranks of the running script must stay equal, as in the lecture's scripts. Profiled runs are
    not compared, because the messages would be in the profile."""
    unit, script, _ = identity.of(sys.argv[0])
    return identity.training(unit, script) == identity.LECTURE and not recording.plan()


def due(step):
    """Return whether the ranks are compared after this step, counted from 1."""
    return step & (step - 1) == 0 and not problem and expected()


def compare(checksums, step):
    """Record which rank's parameters differ after a step. checksums: one per rank, of its parameters."""
    global problem
    other = next((rank for rank, of_rank in enumerate(checksums) if of_rank != checksums[0]), None)
    if other is not None:
        problem = (
            f"rank {other}'s parameters differ from rank 0's after step {step}: are the gradients averaged over the"
            " ranks in each step?"
        )
