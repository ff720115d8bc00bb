"""The Chainer track's ways to send half the bytes, or to send them during the next step: trained with, and compared."""

import json
import sys
from pathlib import Path

import handson.chainer  # noqa: F401
from handson.chainer import chainer_method_runs

import chainer.links as L
import numpy
import pytest
from waiting import run_to_end

from handson.errors import TrackError

SCRIPT = Path(__file__).resolve().parents[2] / "solutions/05_communication/chainer/train_hooks.py"


@pytest.mark.thorough
def test_every_method_trains_and_writes_its_own_result(tmp_path):
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    options = ["--method", "all", "-e", "2", "--size", "16", "-b", "300", "-o", str(tmp_path)]
    run = run_to_end([mpiexec, "-n", "2", sys.executable, SCRIPT, *options])
    assert run.returncode == 0, run.stderr
    results = [
        json.loads((tmp_path / f"{method}_0" / "result.json").read_text())
        for method in ("plain", "float16", "double-buffering", "float16-double-buffering")
    ]
    assert run.stdout.count("Throughput: ") == len(results)
    assert {(result["track"], result["script"], len(result["log"])) for result in results} == {
        ("chainer", "train_hooks", 2)
    }
    losses = [result["log"][0]["main/loss"] for result in results]
    # the same training, but for the type that gradients travel in
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    assert losses[2] == pytest.approx(losses[3], rel=1e-2)


def test_a_loss_that_is_no_number_ends_the_run_with_the_rank_that_has_it():
    model = L.Classifier(L.Linear(2, 2))
    model.add_hook(chainer_method_runs.FiniteLoss(1))
    labels = numpy.zeros(1, "int32")
    model(numpy.ones((1, 2), "float32"), labels)
    with pytest.raises(TrackError, match="rank 1: the loss is infinite or NaN, so the run ends: try a lower --lr"):
        model(numpy.full((1, 2), numpy.nan, "float32"), labels)
