"""The ways to make a step that notebook 01_single_gpu measures, on a core: quickly, and shown with their numbers."""

import torch

from handson.notebook import device_ways, measure


def test_each_way_of_a_core_is_measured_and_shown(monkeypatch):
    monkeypatch.setattr(
        measure, "on_gpus", lambda function, *arguments: [function(torch.device("cpu"), 0, 1, *arguments)]
    )
    found = device_ways.ways(size=16)
    assert found.keys() == device_ways.ON_A_CORE.keys() and all(way.images > 0 for way in found.values())
    assert "convnet, batch 128" in device_ways.show(found).alt
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, False


def test_a_way_for_which_the_gpu_is_too_small_is_left_out_and_named(monkeypatch, capsys):
    def way(device, size, batchsize=32, **_):
        if batchsize == 128:
            raise torch.OutOfMemoryError
        return device_ways.Way(1.0)

    monkeypatch.setattr(device_ways, "_way", way)
    found = device_ways._ways(torch.device("cpu"), 0, 1, 16)
    assert found.keys() == device_ways.ON_A_CORE.keys() - {"convnet, batch 128"}
    assert "convnet, batch 128" in capsys.readouterr().out


def test_without_a_gpu_no_copy_is_measured_and_so_no_measurement_is_disturbed(monkeypatch):
    monkeypatch.setattr(measure, "on_gpus", None)
    assert device_ways.copies() == {}
