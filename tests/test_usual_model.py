"""Which network a script trains where nobody says: one that keeps the device at work."""

from types import SimpleNamespace

import pytest

from handson import chosen_device
from handson.cluster import site
from handson.profiling import usage
from handson.training.options import training_parser, usual_model


@pytest.mark.parametrize(
    "memory, parts, system, track, model",
    [
        ([], 1, "embedded", "pytorch", "convnet"),
        ([141e9], 1, "embedded", "pytorch", "resnet50"),
        ([24e9], 1, "embedded", "pytorch", "resnet18"),  # the four workers of 03_multi_node have 6 GB each
        ([24e9, 24e9], 1, "embedded", "pytorch", "resnet50"),
        ([8e9], 1, "embedded", "pytorch", "convnet"),
        ([24e9], 4, "embedded", "pytorch", "resnet18"),
        ([16e9], 1, "slurm", "pytorch", "resnet50"),  # each worker has its own
        ([141e9, 8e9], 1, "pbs", "pytorch", "resnet18"),
        ([141e9], 1, "embedded", "chainer", "convnet"),
    ],
)
def test_the_network_fits_the_part_of_the_device_that_a_worker_has(memory, parts, system, track, model, monkeypatch):
    monkeypatch.setattr(usage, "memory_of_gpus", lambda: memory)
    monkeypatch.setattr(site, "load", lambda: SimpleNamespace(batch=system))
    monkeypatch.setattr(chosen_device, "parts", parts)
    assert usual_model(track) == model
    parser = training_parser(f"solutions/01_single_gpu/{track}/train_cifar_single_gpu.py", [0])
    assert parser.parse_args([]).model == model
    assert parser.parse_args(["--model", "convnet"]).model == "convnet"
