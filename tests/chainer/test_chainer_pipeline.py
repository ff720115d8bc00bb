"""ChainerMN's pipelines: equal to the unsplit network over mpiexec, whose layers are those of the PyTorch track."""

import json
import os
import sys
import sysconfig
from types import SimpleNamespace
from unittest import mock

import handson.chainer  # noqa: F401
from handson.chainer import stages, transformer

import chainer
import chainer.functions as F
import numpy
import pytest
import torch
from mpi_runs import results
from split_training import MICRO_BATCHES, OPTIONS, PIPELINE, STEPS, batch, numbers
from waiting import run_to_end

from handson.errors import TrackError
from handson.pytorch import transformer as of_torch

NAMES = {"weight": "W", "bias": "b"}
SOURCE = """
from split_training import trained
result({method: trained(create_communicator("naive"), method) for method in ("naive", "gpipe")})
"""


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_both_steps_train_as_the_unsplit_network(size):
    whole = stages.part(SimpleNamespace(rank=0, size=1), SimpleNamespace(**OPTIONS), 10)
    optimizer, losses = chainer.optimizers.SGD(0.1).setup(whole), []
    for step in range(STEPS):
        images, labels = batch(step)
        whole.cleargrads()
        loss = F.softmax_cross_entropy(whole(images), labels)
        loss.backward()
        optimizer.update()
        losses.append(float(loss.array))
    cuts = [rank * 5 // size for rank in range(size + 1)]
    parts = [numbers(list(whole)[begin:end]) for begin, end in zip(cuts, cuts[1:])]
    of_ranks = results(size, SOURCE)
    for method in ("naive", "gpipe"):
        assert of_ranks[-1][method][0] == pytest.approx(losses, abs=1e-5)
        for of_rank, part in zip(of_ranks, parts):
            numpy.testing.assert_allclose(of_rank[method][1], part, rtol=0, atol=1e-5)


@pytest.mark.thorough
def test_the_script_writes_a_result_with_the_last_ranks_loss(tmp_path):
    scripts = sysconfig.get_path("scripts")
    options = "--method naive gpipe -e 1 -b 500 --micro-batches 4 --width 8 --heads 2 --blocks 1"
    command = [
        f"{scripts}/mpiexec",
        "-n",
        "2",
        sys.executable,
        PIPELINE.with_name("train_pipeline.py"),
        "-o",
        tmp_path,
        *options.split(),
    ]
    ended = run_to_end(command, env=os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}"})
    errors = [line for line in ended.stderr.splitlines() if "other programs took" not in line]
    assert (ended.returncode, errors) == (0, [])
    naive, gpipe = (json.loads((tmp_path / f"{method}_0/result.json").read_text()) for method in ("naive", "gpipe"))
    assert naive["images"] == 1500 and naive["track"] == "chainer"
    assert 1 < naive["log"][0]["main/loss"] == pytest.approx(gpipe["log"][0]["main/loss"], abs=1e-4)


def test_the_layers_are_those_of_the_pytorch_track():
    theirs = torch.nn.Sequential(*of_torch.layers(width=8, heads=2, blocks=2))
    mine = chainer.Sequential(*transformer.layers(width=8, heads=2, blocks=2))
    parameters = {
        f"/{number}{name}": parameter for number, layer in enumerate(mine) for name, parameter in layer.namedparams()
    }
    for name, parameter in theirs.named_parameters():
        *path, last = name.replace("mlp.", "").split(".")
        last = {"weight": "gamma", "bias": "beta"}.get(last, last) if "norm" in path[-1] else NAMES.get(last, last)
        parameters.pop("/" + "/".join([*path, last])).array[...] = parameter.detach().numpy()
    assert not parameters
    images, _ = batch(0)
    exact = torch.nn.functional.gelu
    with mock.patch.object(torch.nn.functional, "gelu", lambda numbers: exact(numbers, approximate="tanh")):
        outputs = theirs(torch.from_numpy(images)).detach().numpy()
    numpy.testing.assert_allclose(mine(images).array, outputs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "changes", "sentence"),
    [
        (6, {}, "5 layers cannot be split into 6 stages: start 5 ranks at most, or give the network more --blocks"),
        (
            2,
            {"batchsize": 10},
            "a batch of 10 images cannot be split into 4 equal micro-batches: --micro-batches must divide --batchsize",
        ),
    ],
)
def test_what_cannot_be_divided_is_one_sentence(size, changes, sentence):
    with pytest.raises(TrackError) as error:
        stages.check(SimpleNamespace(size=size), SimpleNamespace(**OPTIONS | changes), MICRO_BATCHES)
    assert str(error.value) == sentence and error.value.on_all_ranks
