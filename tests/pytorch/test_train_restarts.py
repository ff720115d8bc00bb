"""train_restarts.py: a run that is interrupted ends as one that is not, number for number; residuals that don't fit are
a sentence."""

from pathlib import Path

import pytest
import torch
from loading import load
from ranks import on_ranks

from handson.errors import TrackError
from handson.notebook import communication
from handson.pytorch import checkpoints
from handson.pytorch.checkpoints import CheckpointError
from handson.pytorch.model import SmallNet
from handson.pytorch.streams import ImageFiles
from handson.training import map_files, options

SCRIPT = Path(__file__).resolve().parents[2] / "solutions/05_communication/pytorch/train_restarts.py"


class Stop(Exception):
    """In place of a node that dies."""


def train(comm, folder, out, stop=None, noise=None):
    """Two epochs, or as far as the checkpoint after `stop`. noise: on the images after the first checkpoint. Returns
    what is wrong, if anything."""
    module = load(SCRIPT)
    words = ["-e", "2", "-b", "200", "--every", "2", "-o", out, "-g", ",".join(["0"] * comm.size)]
    args = options.training_parser(SCRIPT, None, checkpoints.add_options).parse_args([str(word) for word in words])
    vars(args).update(devices="devices of a test", workers=comm.size, nodes=1, communicator="gloo", network="")
    saved, save = [], checkpoints.save

    def save_and_stop(*arguments):
        save(*arguments)
        saved.append(1)
        args.noise = args.noise if noise is None else noise
        if len(saved) == stop:
            raise Stop

    module.checkpoints.save = save_and_stop
    try:
        module.train(comm, args, ImageFiles(folder / "train.txt", 10))
    except Stop:
        pass
    except TrackError as problem:
        return str(problem)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return map_files.write("digits", tmp_path_factory.mktemp("data") / "digits_files", say=lambda line: None)


def test_a_run_that_stops_in_mid_epoch_ends_as_one_that_does_not(folder, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for out in (whole, stopped):
        out.mkdir()
    on_ranks(train, 2, folder, whole)
    on_ranks(train, 2, folder, stopped, 1)
    state = torch.load(stopped / "checkpoint.pt", weights_only=True)["shared"]["batches"]
    assert state["epoch"] == 0 and 0 < state["position"] < 1500
    on_ranks(train, 2, folder, stopped)
    found = checkpoints.differences(whole, stopped)
    assert {"model", "optimizer", "batches", "residuals of rank 1", "random of rank 1"} <= found.keys()
    assert set(found.values()) == {0.0}


@pytest.mark.thorough
def test_gradients_that_are_no_numbers_end_the_run_and_leave_the_last_good_checkpoint(folder, tmp_path):
    for rank, sentence in enumerate(on_ranks(train, 2, folder, tmp_path, None, float("nan"))):
        assert (
            sentence.startswith(f"rank {rank}: the gradient of ") and "is infinite or NaN, so the run ends" in sentence
        )
    model = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["shared"]["model"]
    assert all(tensor.isfinite().all() for tensor in model.values())


class Two:
    rank, size = 0, 2
    allgather = staticmethod(lambda count: [count, 77])


def test_residuals_of_another_shape_are_a_sentence_with_rank_and_file():
    model = SmallNet((1, 8, 8))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    with pytest.raises(
        CheckpointError,
        match=f"rank 1: the residuals in the checkpoint a.pt have 77 numbers, and the model {parameters:,} parameters",
    ):
        checkpoints.check_residuals({0: torch.zeros(parameters)}, model, "a.pt", Two)


def test_differences_see_what_differs(tmp_path):
    for name, residual in (("one", 1.0), ("two", 1.5)):
        (tmp_path / name).mkdir()
        shared = {"model": {"weight": torch.ones(2)}, "optimizer": {"state": {0: [1, 2]}}, "batches": {"epoch": 1}}
        torch.save(
            {"shared": shared, "own": [{"residuals": {0: torch.full((3,), residual)}, "random": torch.zeros(2)}]},
            tmp_path / name / "checkpoint.pt",
        )
    assert checkpoints.differences(tmp_path / "one", tmp_path / "two") == {
        "model": 0.0,
        "optimizer": 0.0,
        "batches": 0.0,
        "residuals of rank 0": 0.5,
        "random of rank 0": 0.0,
    }


def test_a_job_that_never_writes_a_checkpoint_is_a_sentence(tmp_path):
    with pytest.raises(communication.NotKilled, match="job 7 has written no .*checkpoint.pt in 0 seconds"):
        communication.kill_node("7", "node2", tmp_path / "checkpoint.pt", limit=0)
