"""Which network a script trains where nobody says: one that keeps the device at work."""

import pytest

from handson import chosen_device
from handson.profiling import usage
from handson.training.options import training_parser, usual_model


@pytest.mark.parametrize(
    "memory, parts, track, model",
    [
        ([], 1, "pytorch", "convnet"),
        ([141e9], 1, "pytorch", "resnet50"),
        ([25.8e9], 1, "pytorch", "resnet18"),
        ([25.8e9, 25.8e9], 1, "pytorch", "resnet50"),
        ([141e9, 141e9, 141e9, 8e9], 1, "pytorch", "resnet18"),
        ([8e9], 1, "pytorch", "convnet"),
        ([24e9], 4, "pytorch", "resnet18"),
        ([141e9], 1, "chainer", "convnet"),
    ],
)
def test_the_network_fits_the_device(memory, parts, track, model, monkeypatch):
    monkeypatch.setattr(usage, "memory_of_gpus", lambda: memory)
    monkeypatch.setattr(chosen_device, "parts", parts)
    assert usual_model(track) == model
    parser = training_parser(f"solutions/01_single_gpu/{track}/train_cifar_single_gpu.py", [0])
    assert parser.parse_args([]).model == model
    assert parser.parse_args(["--model", "convnet"]).model == "convnet"
