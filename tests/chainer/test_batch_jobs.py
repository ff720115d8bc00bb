"""The Chainer track as batch jobs: the lecture's three tasks by qsub, on the nodes of the embedded PBS."""

import os
import re
import shutil
import subprocess

import pytest
from script_runs import BIN, ROOT
from waiting import wait_until

from handson.training.results import read

TASKS = {
    path.parent.parent.name[3:]: path.parent.parent.name
    for path in sorted((ROOT / "solutions").glob("[0-9]*/chainer/train_cifar_*.py"))
}
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """task -> (its folder, number of its job), all submitted at once and finished."""
    folder = tmp_path_factory.mktemp("jobs")
    environment = {
        "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "HANDSON_PBS_HOME": str(folder / "pbs"),
    }
    if "HANDSON_DATA" in os.environ:
        environment["HANDSON_DATA"] = os.environ["HANDSON_DATA"]

    def pbs(*command, cwd=folder):
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=30)

    submitted = {}
    for task, name in TASKS.items():
        place = shutil.copytree(ROOT / "solutions" / name, folder / name)
        done = pbs(
            "qsub", "-v", "TRACK=chainer,OPTIONS=-e 1 --size 32", "-j", "oe", f"run_{task}_training.sh", cwd=place
        )
        assert done.returncode == 0, done.stderr
        submitted[task] = place, done.stdout.split(".")[0]
    try:
        for _, number in submitted.values():
            wait_until(
                lambda number=number: "job_state = F" in pbs("qstat", "-xf", number).stdout, f"the end of job {number}"
            )
    finally:
        pbs("qdel", "-W", "force", *(number for _, number in submitted.values()))
    return submitted


@pytest.mark.parametrize("task, workers, nodes", [("single_gpu", 1, 1), ("multi_gpu", 2, 1), ("multi_node", 4, 2)])
def test_a_task_runs_as_a_batch_job(task, workers, nodes, jobs):
    place, number = jobs[task]
    output = (place / f"{task}.o{number}").read_text()
    result = read(place / f"results/{task}_chainer_{number}")
    assert (result.track, result.workers, result.nodes, result.images) == ("chainer", workers, nodes, 1500), output
    match = re.search(r"^Throughput: ([\d.]+) \[images/sec\.\] \(1500 / [\d.]+\)$", output, re.MULTILINE)
    assert match and float(match[1]) == pytest.approx(result.throughput)
    assert "Traceback" not in output


def test_nodes_that_share_a_machine_share_its_cores(jobs):
    """Whatever names the nodes have."""
    place, number = jobs["multi_node"]
    cores = re.search(r"on (\d+) cores|sharing (\d+) core", (place / f"multi_node.o{number}").read_text())
    assert int(cores[1] or cores[2]) <= os.cpu_count()
