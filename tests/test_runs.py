"""A student's own runs are found again, and only what may be compared is."""

import os

import pytest
from made_results import result

from handson.notebook import runs
from handson.training.results import ResultError, write


@pytest.fixture
def exercises(tmp_path):
    """A function that leaves a run behind, as a job does; later ones are younger."""
    made = []

    def run(unit="single_gpu", job=1, rate=100.0, **changes):
        workers = {"single_gpu": 1, "multi_gpu": 2, "multi_node": 4, "frameworks": 1}[unit]
        out = tmp_path / f"0_{unit}" / "results" / f"{unit}_pytorch_{job}"
        path = write(
            result(unit, **dict(workers=workers, seconds=3000 / rate, size=64, epochs=2, images=3000) | changes), out
        )
        made.append(path)
        os.utime(path, (len(made), len(made)))
        return out

    run.root = tmp_path
    return run


def test_a_job_s_run_is_found_by_its_number(exercises):
    exercises(job=1, rate=50)
    exercises(job=11, rate=60)
    assert runs.of_job(exercises.root / "0_single_gpu", "1.host").throughput == pytest.approx(50)


def test_a_job_without_results_is_named(exercises):
    with pytest.raises(ResultError, match="job 7.host has left no results"):
        runs.of_job(exercises.root / "0_single_gpu", "7.host")


def test_runs_under_other_conditions_are_left_out(exercises):
    exercises("single_gpu", 1)
    exercises("single_gpu", 2, epochs=4)
    exercises("single_gpu", 3, track="chainer")
    exercises("multi_gpu", 4)
    (exercises("multi_gpu", 5) / "result.json").write_text("half a ru")
    two = runs.find(exercises.root, unit="multi_gpu")[-1]
    assert [run.unit for run in runs.like(two, exercises.root)] == ["single_gpu", "multi_gpu"]


def test_other_scripts_and_recorded_runs_are_left_out(exercises):
    exercises("multi_gpu", 1)
    exercises("multi_gpu", 2, script="uneven_work")
    exercises("multi_gpu", 3, profiled=True)
    first = runs.find(exercises.root)[0]
    assert [(run.script, run.profiled) for run in runs.like(first, exercises.root)] == [
        ("train_cifar_multi_gpu", False)
    ]


def test_a_run_of_another_system_is_no_run_of_one_worker_to_compare_with(exercises):
    exercises("single_gpu", 1)
    exercises("multi_gpu", 2)
    for number, system in enumerate(["data_parallel", "accelerate"]):
        exercises("frameworks", 3 + number, script=f"train_cifar_{system}", workers=1)
    found = runs.find(exercises.root)
    assert [run.unit for run in runs.like(found[1], exercises.root)] == ["single_gpu", "multi_gpu"]
    assert [run.script for run in runs.like(found[2], exercises.root)] == [
        "train_cifar_data_parallel",
        "train_cifar_accelerate",
    ]


def test_runs_of_the_same_unit_that_communicated_in_another_way_are_left_out(exercises):
    for number, changes in enumerate([{}, {"network": "20mbit"}, {"double_buffering": True}]):
        exercises("multi_node", number, nodes=2, **changes)
    exercises("multi_gpu", 7, communicator="gloo")
    usual, slow, *_ = runs.find(exercises.root)
    assert [(run.unit, run.network) for run in runs.like(usual, exercises.root)] == [
        ("multi_node", ""),
        ("multi_gpu", ""),
    ]
    assert [(run.unit, run.network) for run in runs.like(slow, exercises.root)] == [
        ("multi_node", "20mbit"),
        ("multi_gpu", ""),
    ]


def test_the_youngest_single_run_is_the_one_to_compare_with(exercises):
    exercises("single_gpu", 1, rate=50)
    exercises("single_gpu", 2, rate=60)
    exercises("multi_gpu", 3)
    two = runs.find(exercises.root, unit="multi_gpu")[-1]
    assert runs.single(two, exercises.root).throughput == pytest.approx(60)


def test_a_missing_single_run_is_named_with_its_conditions(exercises):
    exercises("multi_gpu", 3)
    two = runs.find(exercises.root, unit="multi_gpu")[-1]
    with pytest.raises(ResultError, match="digits, 64 px, batch 32 per worker, 2 epochs"):
        runs.single(two, exercises.root)


def test_of_the_table_of_each_training_only_the_last_line_is_said():
    said = []
    say = runs.folded(said.append)
    for line in """Using 2 virtual GPUs

Method: plain
epoch  main/loss  validation/main/accuracy  elapsed_time  MB sent
1      0.9353     0.5859                    1.15          6.98
2      0.5549     0.7138                    2.29          13.97
Throughput: 1327.4 [images/sec.] (9000 / 6.78)

Method: 1-bit
epoch  main/loss  validation/main/accuracy  elapsed_time  MB sent
1      0.8761     0.7306                    0.60          1.36
train.py: rank 1 is out of memory""".splitlines():
        say(line)
    assert said == [
        "Using 2 virtual GPUs",
        "plain: epoch 2, main/loss 0.5549, validation/main/accuracy 0.7138, elapsed_time 2.29, MB sent 13.97",
        "1-bit: epoch 1, main/loss 0.8761, validation/main/accuracy 0.7306, elapsed_time 0.60, MB sent 1.36",
        "train.py: rank 1 is out of memory",
    ]
