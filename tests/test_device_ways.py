"""The ways to make a step that notebook 01_single_gpu measures, on a core: quickly, and shown with their numbers."""

import pytest
import torch

from handson.notebook import device_ways, measure


@pytest.fixture
def here(monkeypatch):
    """Measurements run on a core of this process."""
    monkeypatch.setattr(
        measure, "on_gpus", lambda function, *arguments: [function(torch.device("cpu"), 0, 1, *arguments)]
    )


def test_each_way_of_a_core_is_measured_and_shown(here):
    found = device_ways.ways(size=16)
    assert found.keys() == device_ways.ON_A_CORE.keys() and all(way.images > 0 for way in found.values())
    assert "convnet, batch 128" in device_ways.show(found).alt
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, False


def test_what_does_not_fit_the_gpu_is_left_out(here, monkeypatch, capsys):
    step, way = measure._Training.step, device_ways._way

    def full_with_many_images(training, batches):
        if training.batches.totals[0] > 4:
            raise torch.OutOfMemoryError
        return step(training, batches)

    def full_with_large_batches(device, size, batchsize=32, **options):
        if batchsize > 32:
            raise torch.OutOfMemoryError
        return way(device, size, batchsize=batchsize, **options)

    monkeypatch.setattr(measure._Training, "step", full_with_many_images)
    monkeypatch.setattr(device_ways, "_way", full_with_large_batches)
    assert list(measure.batch_sizes(sizes=(2, 4, 8), size=32, images=16)) == [2, 4]
    assert "batches of 8 images" in capsys.readouterr().out
    assert device_ways.ways(size=16).keys() == device_ways.ON_A_CORE.keys() - {"convnet, batch 128"}


def test_without_a_gpu_no_copy_is_measured_and_so_no_measurement_is_disturbed(monkeypatch):
    monkeypatch.setattr(measure, "on_gpus", None)
    assert device_ways.copies() == {}
