"""One worker to compare with: the student's last run, or one that is made now, by the script that is filled already."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_results import result

from grader.exercises import solved
from handson.notebook import profiled_runs, runs, scaling

ROOT = Path(__file__).resolve().parent.parent
FILE = "exercises/01_single_gpu/pytorch/train_cifar_single_gpu.py"
TWO = SimpleNamespace(workers=2, track="pytorch", device="2 GPUs")


@pytest.fixture
def made(monkeypatch):
    """The arguments of the jobs that are submitted; each of them makes a run of one worker, which is followed."""
    jobs, existing = [], [SimpleNamespace(workers=2, unit="multi_gpu")]

    def submit(folder, *arguments, **variables):
        jobs.append((folder.name, arguments[-1], variables))
        existing.append(SimpleNamespace(workers=1, unit=folder.name[3:]))
        return str(len(jobs))

    monkeypatch.setattr(runs, "submit", submit)
    monkeypatch.setattr(runs, "follow", lambda job: None)
    monkeypatch.setattr(profiled_runs, "submit", submit)
    monkeypatch.setattr(profiled_runs, "of_job", lambda folder, job: f"profile {job} in {folder.name}")
    monkeypatch.setattr(runs, "like", lambda several, exercises: existing)
    return jobs


@pytest.fixture
def exercises(tmp_path):
    """As they are given out."""
    return shutil.copytree(ROOT / "exercises", tmp_path / "exercises", ignore=shutil.ignore_patterns("results"))


def test_a_run_that_there_is_is_not_made_again(made, exercises):
    first = runs.of_one_worker(TWO, exercises)
    assert runs.of_one_worker(TWO, exercises) is first and len(made) == 1


def test_while_the_single_gpu_script_has_gaps_that_of_two_gpus_runs_on_one(made, exercises):
    assert runs.of_one_worker(TWO, exercises, "--epoch 2").unit == "multi_gpu"
    assert profiled_runs.of_one_worker(exercises, "pytorch", "--epoch 1") == "profile 2 in 02_multi_gpu"
    assert made[0] == ("02_multi_gpu", "run_multi_gpu_training.sh", {"TRACK": "pytorch", "OPTIONS": "--epoch 2 -g 0"})
    assert made[1][1] == "run_multi_gpu_profile.sh" and made[1][2]["OPTIONS"] == "--epoch 1 -g 0"


def test_a_single_gpu_script_without_gaps_is_taken(made, exercises):
    (exercises.parent / FILE).write_text(solved(FILE))
    assert runs.of_one_worker(TWO, exercises, "--epoch 2").unit == "single_gpu"
    assert made[0] == ("01_single_gpu", "run_single_gpu_training.sh", {"TRACK": "pytorch", "OPTIONS": "--epoch 2"})


def test_workers_on_virtual_gpus_are_compared_with_one_on_a_virtual_gpu(made, exercises):
    runs.of_one_worker(SimpleNamespace(workers=2, track="chainer", device="2 virtual GPUs"), exercises)
    assert made[0][2]["HANDSON_DEVICE"] == "cpu"


def test_the_slow_network_of_08_scaling_gets_no_gradients_of_a_large_network(monkeypatch, tmp_path):
    known = {"steps": [0.1], "parameters": 70_000}
    small, large = (result("single_gpu", 1, model=model, **known) for model in ("convnet", "resnet50"))
    small.folder, large.folder = "small", "large"
    monkeypatch.setattr(runs, "find", lambda exercises, **conditions: [small, large])
    assert scaling.one_worker("exercises", tmp_path / "one") == "small"
