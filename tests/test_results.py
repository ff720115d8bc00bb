"""The result of a run: written whole or not at all, and believed only when it makes sense."""

import dataclasses
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy
import pytest
from made_results import result

from handson.profiling import recording
from handson.training import method_runs, results
from handson.training.results import OPTIONAL, SINCE, OldResult, Result, ResultError, read, throughput_line, write


def a_run(**changes):
    """A sound result, with some of its fields replaced."""
    fields = dict(unit="multi_node", workers=4, nodes=2, epochs=4, images=6000, seconds=2.5, train_seconds=2.25)
    fields |= dict(versions={"torch": "2.13.0"}, log=[{"epoch": 1, "main/loss": 2.5}, {"epoch": 2, "main/loss": 2.25}])
    return result(**fields | changes)


def test_the_throughput_line_is_that_of_the_lecture():
    expected = "Throughput: 51.12377404072687 [images/sec.] (10000 / 195.6037125121802)"
    assert throughput_line(10000 / 195.6037125121802, 10000, 195.6037125121802) == expected


def test_a_run_that_does_not_train_on_images_names_what_it_trains_on():
    assert throughput_line(2.0, 4, 2.0, "windows of text") == "Throughput: 2.0 [windows of text/sec.] (4 / 2.0)"


def test_what_was_written_is_read(tmp_path):
    path = write(a_run(), tmp_path / "made" / "for it")
    assert path == tmp_path / "made" / "for it" / "result.json"
    assert read(path) == read(path.parent) == a_run()
    assert os.listdir(path.parent) == ["result.json"]


def test_images_counted_by_numpy_or_torch_are_a_whole_number(tmp_path, capsys):
    import torch

    args = SimpleNamespace(
        **{
            name: getattr(a_run(), name)
            for name in ("unit", "script", "track", "dataset", "size", "batchsize", "seed", "lr", "workers", "nodes")
        }
    )
    vars(args).update(devices="4 virtual GPUs", epoch=4, out=tmp_path)
    for images in (numpy.int64(6000), torch.tensor(6000)):
        assert read(results.report(args, images / 2.5, images, 2.5, [])).images == 6000
    with pytest.raises(ResultError, match="images is not a positive whole number"):
        results.report(args, 2400.0, 6000.0, 2.5, [])


def test_a_run_whose_loss_became_nan_still_leaves_a_result(tmp_path):
    nothing = {"main/loss": float("nan"), "main/accuracy": float("inf"), "validation/main/loss": 1e20}
    write(a_run(log=[{"epoch": 1} | nothing]), tmp_path)
    assert read(tmp_path).log == [{"epoch": 1} | dict.fromkeys(nothing)]


def test_a_failed_write_keeps_the_old_result_and_nothing_else(tmp_path, monkeypatch):
    write(a_run(), tmp_path)
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(ResultError, match="No space left on device"):
        write(a_run(seed=1), tmp_path)
    assert read(tmp_path) == a_run() and os.listdir(tmp_path) == ["result.json"]


def test_a_wrong_result_is_not_written(tmp_path):
    with pytest.raises(ResultError, match="workers is not a positive whole number"):
        write(a_run(workers=0), tmp_path)
    assert os.listdir(tmp_path) == []


WRONG = [
    ("unit", ["single_gpu"]),
    ("unit", "two\nlines"),
    ("script", ""),
    ("profiled", 0),
    ("network", None),
    ("lr", 0),
    ("track", 3),
    ("device", "\x1b[2J"),
    ("dataset", "two\nlines"),
    *[
        (name, value)
        for name in ("workers", "nodes", "size", "batchsize", "epochs", "images")
        for value in (0, 1.5, True, "4", None)
    ],
    ("seed", "zero"),
    *[("seconds", value) for value in (0, -1, float("nan"), float("inf"), 10**400, "2.5", None)],
    ("train_seconds", 0),
    ("throughput", 2500),
    ("nodes", 5),
    ("log", {}),
    ("log", [{"loss": "low"}]),
    ("log", [{"loss": float("nan")}]),
    ("versions", []),
]


@pytest.mark.parametrize("name, value", WRONG)
def test_a_field_that_makes_no_sense_is_named(tmp_path, name, value):
    content = dataclasses.asdict(a_run()) | {name: value}
    (tmp_path / "result.json").write_text(json.dumps(content))
    with pytest.raises(ResultError, match=rf"result.json is not the result of a run, because .*{name}"):
        read(tmp_path)


@pytest.mark.parametrize(
    "name", [field.name for field in dataclasses.fields(Result) if field.name not in (*OPTIONAL, *SINCE, "folder")]
)
def test_a_missing_field_is_named(tmp_path, name):
    content = dataclasses.asdict(a_run())
    del content[name]
    (tmp_path / "result.json").write_text(json.dumps(content))
    with pytest.raises(ResultError, match=f"because {name} is missing"):
        read(tmp_path)


@pytest.mark.parametrize("name", SINCE)
def test_a_result_of_an_older_version_says_what_it_lacks(tmp_path, name):
    content = dataclasses.asdict(a_run())
    del content[name]
    (tmp_path / "result.json").write_text(json.dumps(content))
    with pytest.raises(OldResult, match=f"older version of the course and has no {SINCE[name]}: repeat the run"):
        read(tmp_path)


def test_a_result_knows_its_folder_which_its_file_does_not_name(tmp_path):
    path = write(a_run(folder="elsewhere"), tmp_path)
    assert read(path).folder == read(tmp_path).folder == str(tmp_path) and "folder" not in json.loads(path.read_text())


def used(others, cores=2, used=10.0, gpu=None):
    """The usage of a run of 10 seconds on vm."""
    node = {"name": "vm", "cores": cores, "seconds": 10.0, "used": used, "others": others}
    device = {"name": "vm: GPU 0 (X)", "utilisation": [], "memory": [], "energy": None, "others": gpu}
    return {"begin": 0.0, "interval": 1.0, "devices": [device], "nodes": [node]}


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (used(others=8.0), "other programs took 40 % of the cores of vm: repeat the run"),
        (used(others=1.4), None),
        (used(others=250.0, cores=64), None),  # there were enough cores for all
        (used(others=620.0, cores=64), "other programs took 97 % of the cores of vm: repeat the run"),
        (used(others=1.0, gpu=35.0), "other programs took 35 % of GPU 0 (X) of vm: repeat the run"),
        (used(others=8.0, gpu=35.0), "other programs took 40 % of the cores of vm: repeat the run"),
        ({"nodes": [{"name": "vm", "running": 14.2, "cores": 2}]}, None),  # of an older version
        (None, None),
    ],
)
def test_a_run_that_others_disturbed_says_so(usage, words):
    disturbance = a_run(usage=usage).disturbance
    assert (disturbance and str(disturbance)) == words


def test_of_several_disturbed_runs_the_worst_is_named():
    both = [a_run(usage=used(others)).disturbance for others in (8.0, 16.0)]
    assert max(both).words(2) == "other programs took up to 80 % of the cores of vm: repeat these runs"


def test_results_need_no_torch_and_no_numpy():
    code = "import sys, handson.training.results; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_what_a_recording_has_written_counts_in_the_training_that_it_belongs_to(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "recorder", SimpleNamespace(seconds_writing=4.0))
    args = SimpleNamespace(seed=0, out=tmp_path, method=["a"], gpu=[0])
    method_runs.one_run(args, "a", 0)
    assert recording.seconds_writing() == 0, "the training of another method has written that"
