"""The two halves of the model FLOPs utilisation: FLOPs of an image, and what a device can reach."""

from types import SimpleNamespace

import pytest
import torch

from handson.notebook import profiled_runs
from handson.profiling import analysis
from handson.pytorch import flops


def test_an_image_of_resnet50_needs_three_times_the_published_multiplications_of_forward():
    forward, first = 4.09e9, 112 * 112 * 64 * 7 * 7 * 3  # multiplications with 224 pixels; of the first convolution
    expected = 2 * (3 * forward - first)  # images have no gradient
    assert flops.of_image("resnet50", 224, classes=1000) == pytest.approx(expected, rel=0.005)


def test_the_fastest_of_some_products_is_the_peak(monkeypatch):
    monkeypatch.setattr(flops, "SIDE", {"cpu": 10})
    monkeypatch.setattr(flops, "PRODUCTS", 2)
    clock = iter([0, 4, 10, 12])
    monkeypatch.setattr(flops, "_now", lambda device: next(clock))
    assert flops.peak(torch.device("cpu")) == 2 * 10**3 / 2


def test_the_slowest_rank_decides_how_much_of_its_worker_a_profiled_run_uses(monkeypatch):
    monkeypatch.setattr(analysis, "shares", lambda run: [SimpleNamespace(step=0.1), SimpleNamespace(step=0.2)])
    run = SimpleNamespace(result=SimpleNamespace(batchsize=4, size=64, model=None))
    used_each_second = 4 * flops.of_image("convnet", 64) / 0.2
    assert profiled_runs.used(run, peak=10 * used_each_second) == pytest.approx(0.1)
