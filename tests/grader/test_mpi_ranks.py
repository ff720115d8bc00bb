"""The ranks of mpi_accuracy.py are started by mpiexec, inside the sandbox: what its student reads if they don't end."""

import pytest

from answers import known
from grader.course import UNITS
from grader.exercises import solved
from grader.verdict import DEADLOCK, ERROR

PART = next(part for part in UNITS["multi_node"] if part.file.endswith("/mpi_accuracy.py"))
RECEIVES = """
if comm.rank == 0:
    total = comm.recv(source=1)
else:
    total = comm.allreduce(correct)
return total
"""


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        (
            RECEIVES,
            DEADLOCK,
            "rank 0 waits in `total = comm.recv(source=1)`; ranks 1, 2 and 3 wait in `total = comm.allreduce(correct)`",
        ),
        ("return comm.alreduce(correct)", ERROR, "rank 0: AttributeError: "),
        ("import os; os.abort()", ERROR, "a rank's process ended in the code (6)"),
    ],
)
def test_a_rank_that_does_not_end_is_named_with_its_line(server_for, code, status, message):
    text = solved(PART.file, mpi_accuracy=code.strip("\n"))
    [verdict] = known.verdicts("multi_node", PART, text, server_for(PART.file))
    assert verdict.status == status and verdict.message.startswith(message), verdict.message
