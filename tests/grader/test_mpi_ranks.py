"""The ranks of mpi_accuracy.py are started by mpiexec: what its student reads if they don't end, of a check, which has a
sandbox, and of the command in the notebook."""

import subprocess
import sys
from pathlib import Path

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
        ("import os; os.abort()", ERROR, "the process of a rank ended in your code (6)"),
    ],
)
def test_a_rank_that_does_not_end_is_named_with_its_line(server_for, code, status, message):
    text = solved(PART.file, mpi_accuracy=code.strip("\n"))
    [verdict] = known.verdicts("multi_node", PART, text, server_for(PART.file))
    assert verdict.status == status and verdict.message.startswith(message), verdict.message


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("return comm.allreduce(correct) / comm.allreduce(images)", "rank 3 "),
        ("total = comm.gather(correct)\nif comm.rank == 0:\n    return sum(total) / 300", "None of all"),
        ("return sum(comm.gather(correct)) / 300", "'NoneType' object is not iterable"),
        ("return comm.allreduce(1) if comm.rank == 0 else comm.bcast(None)", "in accuracy"),
    ],
    ids=["right", "on rank 0 alone", "an error on some ranks", "different calls"],
)
def test_the_command_of_the_notebook_ends_whatever_the_ranks_call(tmp_path, code, printed):
    text = solved(PART.file, mpi_accuracy=code).replace("LIMIT = 10 ", "LIMIT = 2 ")
    (tmp_path / "mpi_accuracy.py").write_text(text)
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "-n", "4", sys.executable, "-m", "mpi4py", "mpi_accuracy.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert printed in done.stdout + done.stderr
