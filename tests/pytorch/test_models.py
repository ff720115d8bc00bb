"""The networks that --model offers: of the published sizes, trained by the lecture's scripts, kept apart in tables."""

import os
import subprocess
import sys

import pytest
import torch
from made_results import result
from ranks import ROOT
from smaller import few_images

from handson import compare
from handson.pytorch.model import get_model
from handson.training import identity, options, results


@pytest.mark.parametrize("name, parameters", [("resnet18", 11_689_512), ("resnet50", 25_557_032)])
def test_a_residual_network_has_the_published_number_of_parameters(name, parameters):
    """Source: torchvision's documentation of ResNet18_Weights and ResNet50_Weights."""
    assert sum(parameter.numel() for parameter in get_model(name, 1000).parameters()) == parameters


@pytest.mark.parametrize("name", identity.MODELS["pytorch"])
def test_every_network_takes_images_of_any_size(name):
    model = get_model(name, 7).eval()
    assert [model(torch.zeros(2, 3, size, size)).shape for size in (32, 75)] == [(2, 7)] * 2


def test_a_residual_block_adds_its_branch_to_its_input():
    from handson.pytorch.resnet import bottleneck

    block, images = bottleneck(64, 16, stride=1).eval(), torch.rand(2, 64, 5, 5)
    assert torch.equal(block(images), images)  # the branch begins as zero
    torch.nn.init.ones_(block.branch[-1][1].weight)
    assert torch.equal(block(images), torch.relu(block.branch(images) + images))


@pytest.mark.parametrize(
    "script, model, parameters",
    [
        ("pytorch/train_cifar_single_gpu.py", "resnet18", 11_689_512 - 513 * 990),  # 10 classes, not 1,000
        pytest.param(
            "chainer/train_cifar_single_gpu.py", "resnet50", 25_557_096 - 2049 * 990, marks=pytest.mark.thorough
        ),
    ],
)
def test_a_script_trains_the_network_that_is_asked_for(script, model, parameters, tmp_path):
    few_images(tmp_path / "data", train=40, test=20)
    command = [sys.executable, ROOT / "solutions/01_single_gpu" / script, "--model", model, "-e", "1", "--size", "32"]
    environment = os.environ | {"HANDSON_DATA": str(tmp_path / "data")}
    subprocess.run([*command, "-o", tmp_path / "out"], env=environment, check=True, timeout=120, capture_output=True)
    run = results.read(tmp_path / "out")
    assert (run.model, run.parameters) == (model, parameters)
    assert run.log[0]["main/loss"] > 0


@pytest.mark.parametrize("track, models", identity.MODELS.items())
def test_a_track_offers_its_networks_and_no_other(track, models, capsys):
    parser = options.training_parser(f"07_frameworks/{track}/train_cifar_single_gpu.py", [0])
    assert [parser.parse_args(["--model", model]).model for model in models] == list(models)
    assert parser.parse_args([]).model == "convnet"
    with pytest.raises(SystemExit):
        parser.parse_args(["--model", "lenet"])
    assert "choose from" in capsys.readouterr().err


def test_runs_of_different_networks_are_not_compared():
    large = [result("single_gpu", workers=1, seconds=8, model="resnet50"), result(seconds=5, model="resnet50")]
    small = [result("single_gpu", workers=1, seconds=2, model="convnet"), result(seconds=1, model=None)]
    rows = compare.table(large + small)
    assert len(rows) == 4
    assert {row.speedup for row in rows if row.workers == 2} == {8 / 5, 2}
