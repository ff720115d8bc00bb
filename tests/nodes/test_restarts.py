"""A node of a job is killed: torchrun starts the ranks again, and the training ends as one that nothing interrupted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from environments import ROOT, environment_of
from node_jobs import Jobs

from handson.cluster import virtual_nodes
from handson.notebook import communication
from handson.pytorch import checkpoints
from handson.training import map_files

SCRIPTS = ROOT / "solutions/05_communication"
OPTIONS = "OPTIONS=-e 2 -b 100 --every 2 -o"


@pytest.mark.parametrize(("codes", "status"), [((0,), 0), ((2,), 1), ((137, 0), 0), ((137, 3), 1)], ids=str)
def test_the_job_starts_a_killed_node_once_more_and_ends_as_its_training(tmp_path, codes, status):
    """codes: of the first, second, ... start on the second node."""
    (tmp_path / "nodes").write_text("node1\nnode2\n")
    (tmp_path / "handson-agent").write_text(
        f"#!/bin/bash\n[ $1 = node1 ] && exit 0\ncodes=({' '.join(map(str, codes))})\ntouch begun; n=$(wc -l <begun);"
        " echo >>begun\nexit ${codes[$n]}\n"
    )
    (tmp_path / "handson-agent").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "PBS_O_WORKDIR": str(tmp_path),
        "PBS_NODEFILE": "nodes",
        "PBS_JOBID": "1",
    }
    done = subprocess.run(["bash", SCRIPTS / "run_restarts.sh"], env=environment, cwd=tmp_path, timeout=60)
    assert done.returncode == status and len((tmp_path / "begun").read_text()) == len(codes)


@pytest.mark.thorough
@pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}")
def test_a_killed_node_costs_no_number(tmp_path):
    # torchrun and ranks start more than ten times
    jobs = Jobs(tmp_path, path=[environment_of(ROOT, tmp_path / "venv")])
    try:
        shutil.copytree(SCRIPTS, jobs.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("results", "*.o[0-9]*"))
        map_files.write("digits", tmp_path / "data/digits_files", say=lambda line: None)
        numbers = {}
        for name in ("whole", "killed"):
            done = jobs(
                *"qsub -j oe -v".split(),
                f"{OPTIONS} results/{name},HANDSON_DATA={tmp_path / 'data'}",
                "run_restarts.sh",
            )
            numbers[name] = done.stdout.split(".")[0]
        communication.kill_node(
            numbers["killed"], "node2", jobs.folder / "results/killed/checkpoints", limit=100, say=lambda line: None
        )
        for name, number in numbers.items():
            output = Path(jobs.folder, f"restarts.o{number}")
            assert jobs.finish(number)["Exit_status"] == "0", output.read_text()[-3000:]
        assert "Going on in epoch" in output.read_text()
        assert set(checkpoints.differences(jobs.folder / "results/whole", jobs.folder / "results/killed").values()) == {
            0.0
        }
    finally:
        jobs.close()
