"""HANDSON_DEVICE: virtual GPUs of cores where there are real ones, or parts of these."""

import os
from types import SimpleNamespace

import pytest
from made_results import result

from handson import chosen_device
from handson.cluster import follow
from handson.compare import remarks, table, text
from handson.pbs import command
from handson.training.banner import without_effect


@pytest.fixture
def chosen(monkeypatch):
    """Has HANDSON_DEVICE be the given text, as `import handson` does; returns what is wrong with it."""
    monkeypatch.setattr(chosen_device, "parts", 1)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"):
        monkeypatch.delenv(name, raising=False)

    def choose(text, has_gpus=True):
        monkeypatch.setenv("HANDSON_DEVICE", text)
        chosen_device.choose()
        return chosen_device.problem(has_gpus)

    return choose


def test_cpu_hides_the_gpus_from_all_libraries(chosen):
    assert chosen("cpu", has_gpus=False) is None
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_parts_of_a_gpu_are_limited_by_mps_and_refused_without_it(chosen, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert "nvidia-cuda-mps-control -d" in chosen("gpu/4")
    (tmp_path / "control").touch()
    assert chosen("GPU/4") is None
    assert chosen_device.parts == 4 and os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"


@pytest.mark.parametrize("text", ["cuda", "gpu/0", "2"])
def test_another_word_is_named(chosen, text):
    assert f"HANDSON_DEVICE is {text!r}" in chosen(text)


def test_a_gpu_that_is_not_there_is_missed(chosen):
    assert "sees no GPU" in chosen("gpu", has_gpus=False)


WHOLE, PART = "1 GPU (X)", "a part of a GPU (X), with 1/2 of its memory and multiprocessors"
SHARED = "1 GPU (X) shared by 2 workers"


def test_a_part_of_a_gpu_is_not_compared_with_a_whole_one():
    whole, part = (result("single_gpu", 1, seconds, device=device) for seconds, device in ((1, WHOLE), (2, PART)))
    rows = table([whole, part])
    assert all(row.speedup == 1 for row in rows)
    assert any("the runs differ in kind of GPU" in line for line in text(rows))


def test_workers_that_share_a_gpu_are_named_in_the_table_and_before_the_run():
    assert any("share a GPU" in line for line in remarks([result(device=SHARED)]))
    args = SimpleNamespace(workers=2, gpu=[0, 0], devices=SHARED, track="pytorch")
    assert any("HANDSON_DEVICE=gpu/2" in line for line in without_effect(args))
    args = SimpleNamespace(workers=4, gpu=[0, 1, 0, 1], devices="2 GPUs (X) shared by 4 workers", track="pytorch")
    assert any("HANDSON_DEVICE=gpu/2" in line for line in without_effect(args))


def test_jobs_of_a_notebook_get_its_device(monkeypatch):
    monkeypatch.setattr(command, "batch_system", lambda: ("embedded", None))
    monkeypatch.setenv("HANDSON_DEVICE", "cpu")
    assert "HANDSON_DEVICE" in follow.sending({"TRACK": "pytorch"})[1].split(",")
