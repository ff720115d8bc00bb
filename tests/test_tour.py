"""The tour as a newcomer runs it: three jobs by qsub with the lecture's output, their results, a table and a figure."""

import json
import os
import re
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from waiting import run_to_end

from answers.tour import TourError
from answers.tour import tour as grade_tour

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = "-e 1 --size 32"
TASKS = {
    path.parent.name[3:]: path.parent.name for path in sorted((ROOT / "solutions").glob("[0-9]*/run_*_training.sh"))
}
WORKERS = {"single_gpu": 1, "multi_gpu": 2, "multi_node": 4}
NODES = {"single_gpu": 1, "multi_gpu": 1, "multi_node": 2}

# The lecture's output, with what differs from machine to machine left open.
TABLE = [
    "epoch +main/loss +validation/main/loss +main/accuracy +validation/main/accuracy +elapsed_time",
    r"1 +\d\.\d+ +\d\.\d+ +0\.\d+ +0\.\d+ +\d+\.\d+ *",
    r"Throughput: \d+\.\d+ \[images/sec\.\] \(1500 / \d+\.\d+\)",
]
DEVICES = r"Using \d (virtual )?GPUs?.*"
DATASET = "Using digits dataset: .*/datasets/digits.npz"
LECTURE = {
    "single_gpu": [
        "Start a training script using a single GPU.",
        "# Minibatch-size: 32",
        "# epoch: 1",
        "",
        DEVICES,
        DATASET,
        *TABLE,
    ],
    "multi_gpu": [
        "Start a training script using multiple GPUs.",
        "# GPUs: 2",
        "# Minibatch-size: 32",
        "# epoch: 1",
        "",
        DEVICES,
        DATASET,
        *TABLE,
    ],
    "multi_node": [
        "Start a training script using multiple nodes.",
        "=" * 42,
        r"Num process \(COMM_WORLD\): 4",
        DEVICES,
        "Using (gloo|nccl) communicator",
        "Num Minibatch-size: 32",
        "Num epoch: 1",
        "=" * 42,
        DATASET,
        *TABLE,
    ],
}


def solutions():
    """All files and folders of the solutions, but what Python keeps of them where it may."""
    return sorted(path for path in (ROOT / "solutions").rglob("*") if "__pycache__" not in path.parts)


class Tour:
    def __init__(self, folder, pbs):
        programs = sysconfig.get_path("scripts")
        environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HANDSON_PBS_HOME": str(pbs),
            "CUDA_VISIBLE_DEVICES": "",
        }
        command = [sys.executable, "-m", "handson", "tour", "-o", folder, "--track", "pytorch", "--options", OPTIONS]
        self.before = solutions()
        done = run_to_end(command, cwd=ROOT, env=environment, timeout=500)
        self.folder, self.status, self.out, self.errors = folder, done.returncode, done.stdout, done.stderr

    def output(self, task):
        """The lines of the job's output file, without that on what other programs took of this machine."""
        [path] = (self.folder / TASKS[task]).glob("*.[oe][0-9]*")
        assert re.fullmatch(rf"{task}\.o\d+", path.name)
        return [line for line in path.read_text().splitlines() if "other programs took" not in line]

    def result(self, task):
        [path] = (self.folder / TASKS[task] / "results").glob(f"{task}_pytorch_*/result.json")
        return json.loads(path.read_text())


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    return Tour(tmp_path_factory.mktemp("the tour"), tmp_path_factory.mktemp("pbs"))


@pytest.fixture(params=LECTURE)
def task(request):
    return request.param


def test_it_runs_the_training_of_every_unit_that_has_one(tour):
    assert re.findall(r"qsub -v TRACK,OPTIONS\S* -j oe run_(\w+)_training\.sh$", tour.out, re.MULTILINE) == list(TASKS)


def test_it_ends_well_and_complains_of_nothing(tour):
    assert (tour.status, tour.errors) == (0, "")


def test_each_job_prints_what_the_lecture_prints_and_nothing_else(tour, task):
    """One rank speaks; no warnings, no codes for a terminal."""
    lines = tour.output(task)
    assert len(lines) == len(LECTURE[task]), "\n".join(lines)
    for line, expected in zip(lines, LECTURE[task]):
        assert re.fullmatch(expected, line), line


def test_the_output_of_the_jobs_is_shown_as_it_comes(tour, task):
    for line in tour.output(task):
        assert line in tour.out.splitlines()


def test_it_says_which_commands_it_runs(tour, task):
    assert re.search(
        rf"^\$ TRACK=pytorch OPTIONS='{OPTIONS}' qsub -v TRACK,OPTIONS\S* -j oe run_{task}_training\.sh$",
        tour.out,
        re.MULTILINE,
    )


def test_each_job_leaves_a_result_that_agrees_with_its_output(tour, task):
    result = tour.result(task)
    throughput, images, seconds = re.fullmatch(
        r"Throughput: (\S+) \S+ \((\S+) / (\S+)\)", tour.output(task)[-1]
    ).groups()
    assert (result["throughput"], result["images"], result["seconds"]) == (
        float(throughput),
        int(images),
        float(seconds),
    )
    assert result["throughput"] == pytest.approx(result["images"] / result["seconds"])
    assert 0 < result["train_seconds"] < result["seconds"]
    row = [float(word) for word in tour.output(task)[-2].split()]
    [epoch] = result["log"]
    names = ["epoch", "main/loss", "validation/main/loss", "main/accuracy", "validation/main/accuracy", "elapsed_time"]
    assert [epoch[name] for name in names] == pytest.approx(row, rel=1e-4)


def test_each_result_says_what_was_run_and_where(tour, task):
    result = tour.result(task)
    expected = {"unit": task, "script": f"train_cifar_{task}", "track": "pytorch", "profiled": False}
    expected |= {"dataset": "digits", "size": 32, "batchsize": 32, "epochs": 1, "seed": 0}
    assert {name: result[name] for name in expected} == expected
    assert (result["workers"], result["nodes"]) == (WORKERS[task], NODES[task])
    assert f"Using {result['device']}" in tour.output(task)


def test_the_network_learns_in_each_job(tour, task):
    """Far better than the tenth that guessing gets."""
    assert tour.result(task)["log"][-1]["validation/main/accuracy"] > 0.3


def test_it_ends_with_the_table(tour):
    table = tour.out[tour.out.rindex("Throughput: ") :]
    for task in TASKS:
        row = next(line for line in table.splitlines() if task in line)
        assert f"{tour.result(task)['throughput']:.0f}" in row.replace(
            ",", ""
        ) or f"{tour.result(task)['throughput']:.1f}" in row.replace(",", "")
    assert "speed-up" in table and "efficiency" in table


def test_it_draws_the_figure_and_says_where(tour):
    figure = tour.folder / "throughput.png"
    assert str(figure) in tour.out
    content = figure.read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    width, height = struct.unpack(">II", content[16:24])
    assert 400 < width < 5000 and 300 < height < 5000 and len(content) > 10_000
    assert (tour.folder / "throughput.svg").read_text().startswith("<?xml")


def test_it_leaves_the_solutions_untouched(tour):
    assert solutions() == tour.before
    assert str(tour.folder) in tour.out


@pytest.mark.thorough
def test_a_job_that_fails_ends_the_tour_with_a_sentence(tmp_path):
    environment = os.environ | {
        "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
        "HANDSON_PBS_HOME": str(tmp_path / "pbs"),
    }
    command = [
        sys.executable,
        *"-m handson tour -o".split(),
        tmp_path / "tour",
        *"--track pytorch --options".split(),
        "-b 0",
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "must be a whole number above 0" in done.stdout
    assert re.fullmatch(
        r"handson tour: job \S+ ended with status 2; its output is in \S+/single_gpu\.o\d+\n", done.stderr
    )


def test_a_class_that_has_no_place_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        TourError, match=r"file/class can't be made \(Not a directory\): name another folder with --folder"
    ):
        grade_tour(tmp_path / "file/class", False, print)
