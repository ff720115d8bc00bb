"""The course's job scripts on a real Slurm with two hosts, unchanged: by its qsub, and by sbatch in jobs that have
nothing of PBS."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from environments import QUICK_START
from slurm_harness import ENVIRONMENT, FOLDERS, PATIENCE, ROOT

LECTURE = {  # the first lines, as in the lecture
    "single_gpu": ["Start a training script using a single GPU.", "# Minibatch-size: 32"],
    "multi_gpu": ["Start a training script using multiple GPUs.", "# GPUs: 2", "# Minibatch-size: 32"],
    "multi_node": ["Start a training script using multiple nodes.", "=" * 42, "Num process (COMM_WORLD): 4"],
}
TABLE = "epoch +main/loss +validation/main/loss +main/accuracy +validation/main/accuracy +elapsed_time"
WORKERS_AND_NODES = {"single_gpu": (1, 1), "multi_gpu": (2, 1), "multi_node": (4, 2)}


def check_output(output, task, epochs):
    """Everything the lecture's output has, in its order; returns images and seconds of the last line."""
    output = re.sub("^Warning: other programs took .*\n", "", output, flags=re.MULTILINE)  # of this machine
    start = output.index(LECTURE[task][0])
    assert output[start:].splitlines()[: len(LECTURE[task])] == LECTURE[task]
    rows = re.search(
        rf"^{TABLE} *\n((?:\d+ .*\n)+)Throughput: \S+ \[images/sec\.\] \((\d+) / (\S+)\)$", output[start:], re.MULTILINE
    )
    assert rows, output
    assert [row.split()[0] for row in rows[1].splitlines()] == [str(epoch + 1) for epoch in range(epochs)]
    return int(rows[2]), float(rows[3])


def check_result(path, task, track, epochs, images, seconds):
    result = json.loads(path.read_text())
    assert (result["unit"], result["track"], result["epochs"]) == (task, track, epochs)
    assert (result["workers"], result["nodes"]) == WORKERS_AND_NODES[task]
    assert (result["images"], result["seconds"]) == (images, pytest.approx(seconds))


@pytest.fixture(scope="module")
def toured(cluster, tmp_path_factory):
    """The tour, which submits the PyTorch track's scripts: its folder, status and output."""
    folder = tmp_path_factory.mktemp("tour") / "tour"
    command = [
        sys.executable,
        *"-m handson tour -o".split(),
        folder,
        *"--track pytorch --options".split(),
        "-e 1 --size 16",
    ]
    with cluster.start(
        *map(str, command),
        folder=ROOT,
        env=ENVIRONMENT | QUICK_START,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        printed, _ = process.communicate(timeout=PATIENCE)
    return SimpleNamespace(folder=folder, status=process.returncode, printed=printed)


@pytest.mark.thorough
def test_the_tour_runs(toured):
    assert toured.status == 0, toured.printed
    assert toured.printed.count("[images/sec.]") == len(list(ROOT.glob("solutions/*/run_*_training.sh"))), (
        "the output of each job is shown"
    )
    assert (toured.folder / "throughput.png").exists()


def check_run(folder, task, track, epochs, number):
    """A job script left the lecture's output and a result that agrees with it, and no file of errors."""
    figures = check_output((folder / f"run_{task}_training.sh.o{number}").read_text(), task, epochs)
    check_result(folder / "results" / f"{task}_{track}_{number}" / "result.json", task, track, epochs, *figures)
    assert not list(folder.glob("*.e[0-9]*"))


@pytest.mark.thorough
@pytest.mark.parametrize("task", FOLDERS)
def test_a_pbs_script_runs_unchanged(toured, task):
    assert toured.status == 0, toured.printed
    folder = toured.folder / FOLDERS[task]
    [output] = folder.glob(f"run_{task}_training.sh.o*")
    check_run(folder, task, "pytorch", 1, output.name.rpartition(".o")[2])


@pytest.mark.thorough
@pytest.mark.parametrize("task", FOLDERS)
def test_a_pbs_script_runs_unchanged_in_the_other_track(jobs, task):
    state, number, folder = jobs.finished("chainer", task)
    assert state == "COMPLETED", (folder / f"run_{task}_training.sh.o{number}").read_text()
    check_run(folder, task, "chainer", 4, number)


@pytest.mark.parametrize(
    "task", [task if task == "single_gpu" else pytest.param(task, marks=pytest.mark.thorough) for task in FOLDERS]
)
def test_a_script_runs_by_sbatch_where_nothing_of_pbs_is_set(jobs, task):
    state, number, folder = jobs.finished("native", task)
    output = (folder / f"{task}.o{number}").read_text()
    assert state == "COMPLETED", output
    figures = check_output(output, task, 1)
    check_result(folder / "results" / f"{task}_chainer_{number}" / "result.json", task, "chainer", 1, *figures)
