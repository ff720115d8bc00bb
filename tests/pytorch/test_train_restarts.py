"""train_restarts.py: a run that is interrupted ends as one that is not, number for number, and goes on with any number
of ranks."""

from pathlib import Path

import pytest
import torch
from loading import load
from ranks import on_ranks

from handson.errors import TrackError
from handson.pytorch import checkpoints
from handson.pytorch.checkpoints import CheckpointError
from handson.pytorch.streams import ImageFiles
from handson.training import map_files, options

SCRIPT = Path(__file__).resolve().parents[2] / "solutions/05_communication/pytorch/train_restarts.py"
CPU = torch.device("cpu")


class Stop(Exception):
    """In place of a node that dies."""


def train(comm, folder, out, stop=None, noise=None):
    """Two epochs, or as far as the checkpoint after `stop`. noise: on the images after the first checkpoint. Returns
    what is wrong, if anything."""
    module = load(SCRIPT)
    words = ["-e", "2", "-b", "200", "--every", "2", "-o", out, "-g", ",".join(["0"] * comm.size)]
    args = options.training_parser(SCRIPT, None, checkpoints.add_options).parse_args([str(word) for word in words])
    vars(args).update(devices="devices of a test", workers=comm.size, nodes=1, communicator="gloo", network="")
    saved, save = [], module.save

    def save_and_stop(*arguments):
        save(*arguments)
        saved.append(1)
        args.noise = args.noise if noise is None else noise
        if len(saved) == stop:
            raise Stop

    module.save = save_and_stop
    try:
        module.train(comm.rank, args, ImageFiles(folder / "train.txt", 10))
    except Stop:
        pass
    except TrackError as problem:
        return str(problem)


def last(comm, out):
    """What this rank gets from the last checkpoint, or a sentence."""
    try:
        return checkpoints.load(out / "checkpoints", CPU)
    except CheckpointError as problem:
        return str(problem)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return map_files.write("digits", tmp_path_factory.mktemp("data") / "digits_files", say=lambda line: None)


@pytest.fixture
def stopped(folder, tmp_path):
    """The results of a run of two ranks that was stopped in the first epoch."""
    (tmp_path / "stopped").mkdir()
    on_ranks(train, 2, folder, tmp_path / "stopped", 1)
    return tmp_path / "stopped"


def test_a_run_that_stops_in_mid_epoch_ends_as_one_that_does_not(folder, stopped, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    on_ranks(train, 2, folder, whole)
    [(shared, _), _] = on_ranks(last, 2, stopped)
    assert shared["batches"]["epoch"] == 0 and 0 < shared["batches"]["position"] < 1500
    on_ranks(train, 2, folder, stopped)
    found = checkpoints.differences(whole, stopped)
    assert {"model", "optimizer", "batches", "residuals of rank 1", "random of rank 1"} <= found.keys()
    assert set(found.values()) == {0.0}


@pytest.mark.parametrize("size", [1, 3, pytest.param(4, marks=pytest.mark.thorough)])
def test_a_run_goes_on_with_another_number_of_ranks_and_sends_what_was_owed(folder, stopped, size):
    before = [own["residuals"][0] for _, own in on_ranks(last, 2, stopped)]
    assert before[0].any() and not torch.equal(*before)
    for _, own in on_ranks(last, size, stopped):
        assert torch.equal(own["residuals"][0], sum(before) / 2)  # so the mean of what all ranks owe is what it was
    on_ranks(train, size, folder, stopped)
    states = on_ranks(last, size, stopped)
    assert all(shared["batches"]["epoch"] == 2 for shared, _ in states)
    assert len({own["residuals"][0].sum().item() for _, own in states}) == size


def test_a_damaged_checkpoint_leaves_the_one_before(folder, stopped):
    on_ranks(train, 2, folder, stopped, 1)
    newest, before = checkpoints.whole(stopped / "checkpoints")
    part = newest / "__1_0.distcp"
    part.write_bytes(part.read_bytes()[:100])
    for shared, _ in on_ranks(last, 2, stopped):
        assert shared["batches"]["position"] == int(before.name)
    (before / ".metadata").write_bytes(b"")
    for sentence in on_ranks(last, 2, stopped):
        assert sentence.startswith(f"the checkpoint {newest} is damaged, and no earlier checkpoint can be read")


def test_a_checkpoint_that_is_not_complete_is_none(stopped, tmp_path):
    [checkpoint] = checkpoints.whole(stopped / "checkpoints")
    (checkpoint / ".metadata").unlink()
    assert on_ranks(last, 2, stopped) == [None, None]


@pytest.mark.thorough
def test_gradients_that_are_no_numbers_end_the_run_and_leave_the_last_good_checkpoint(folder, tmp_path):
    for rank, sentence in enumerate(on_ranks(train, 2, folder, tmp_path, None, float("nan"))):
        assert (
            sentence.startswith(f"rank {rank}: the gradient of ") and "is infinite or NaN, so the run ends" in sentence
        )
    [(shared, _), _] = on_ranks(last, 2, tmp_path)
    assert all(tensor.isfinite().all() for tensor in shared["model"].values())


def test_differences_see_what_differs(stopped, tmp_path):
    other = tmp_path / "other"
    on_ranks(changed, 2, stopped, other)
    found = checkpoints.differences(stopped, other)
    assert found.pop("residuals of rank 1") == pytest.approx(0.5) and set(found.values()) == {0.0}


def changed(comm, out, other):
    """Save the last checkpoint with another residual of rank 1."""
    shared, own = checkpoints.load(out / "checkpoints", CPU)
    own["residuals"][0][0] += 0.5 * comm.rank
    module = load(SCRIPT)
    batches = module.Partition(1500, 400)
    batches.load_state_dict(shared["batches"])
    module.save(other / "checkpoints", shared, own, batches)
