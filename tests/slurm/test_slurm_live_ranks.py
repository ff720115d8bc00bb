"""Live ranks of a notebook, as a job of Slurm on both of its hosts."""

import subprocess
import sys

import pytest
from slurm_harness import ENVIRONMENT, PATIENCE, ROOT

NOTEBOOK = str(ROOT / "tests/live_notebook.py")
CELLS = (
    "import os, socket; print(local_rank, socket.gethostname())",
    "x = torch.ones(1) * rank; dist.all_reduce(x); print(x.item())",
    "if rank != 2:\n    dist.all_reduce(x)",
    "dist.barrier(); print('freed')",
    "folder = [word for word in os.sys.argv if 'profile_handson-ranks-' in word][0].partition('=')[2]\n"
    "files = os.path.join(folder, 'security')\n"
    "print([oct(os.stat(path).st_mode & 0o777) for path in (folder, *sorted(file.path for file in os.scandir(files) if 'ipcontroller' in file.name))])",
)
pytestmark = pytest.mark.thorough


def environment(folder):
    return ENVIRONMENT | {"IPYTHONDIR": str(folder / "ipython"), "PYTHONPATH": str(ROOT)}


def test_ranks_are_a_job_of_slurm(cluster, tmp_path):
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, NOTEBOOK, "4", "slurm", *CELLS]
    with cluster.start(*command, folder=tmp_path, env=environment(tmp_path), **options) as process:
        printed, _ = process.communicate(timeout=PATIENCE)
    assert "4 ranks (ranks 0 and 1 on node1; ranks 2 and 3 on node2)" in printed
    assert "rank 0: 0 node1\nrank 1: 1 node1\nrank 2: 0 node2\nrank 3: 1 node2\n" in printed, (
        "engines are numbered as ranks"
    )
    assert "ranks 0 to 3: 6.0\n" in printed
    assert "Ranks 0, 1 and 3 wait in all_reduce, line 2; rank 2 is idle." in printed
    assert "ranks 0 to 3: freed\n" in printed
    assert "ranks 0 to 3: ['0o700', '0o600', '0o600']\n" in printed
    assert cluster.run("squeue", "--noheader", "--states=R,PD") == "", "their job has ended"


def test_a_notebook_in_a_job_has_its_ranks_in_another_one(jobs, tmp_path):
    script = f"#!/bin/bash\n{sys.executable} {NOTEBOOK} 2 slurm 'dist.barrier(); print(world_size)'\n"
    printed, _ = jobs.run(script, "-V", **environment(tmp_path))
    assert "2 ranks (rank 0 on node1; rank 1 on node2)" in printed
    assert "ranks 0 and 1: 2\n" in printed
