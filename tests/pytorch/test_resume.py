"""--resume: a run that was killed goes on from its snapshot as if nothing had happened; what isn't its snapshot is
refused."""

import json
import os

import numpy
import pytest
import torch
from ranks import image_set, on_ranks, run_ranks, train

TASKS = [("single_gpu", 1), ("multi_gpu", 2), ("multi_node", 2)]
EPOCHS = 4
WORDS = ["-b", 8, "--size", 16]
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", params=TASKS, ids=lambda task: task[0])
def task(request):
    return request.param


def run(task, out, *words, images=41, start=on_ranks, **how):
    """Train on `images`; the ranks begin with weights that depend on `how`."""
    name, size = task
    return start(
        train,
        size,
        name,
        [*WORDS, "-e", EPOCHS, "-o", out, *words],
        image_set(images),
        image_set(9, seed=1),
        *how.values(),
    )


@pytest.fixture(scope="module")
def whole(task, tmp_path_factory):
    """The uninterrupted run: its folder and its Trainings."""
    out = tmp_path_factory.mktemp("whole")
    return out, run(task, out)


@pytest.fixture(scope="module")
def killed(task, tmp_path_factory):
    """The folder of a run whose rank 0 was killed in its third epoch, and the others then too."""
    out = tmp_path_factory.mktemp("killed")
    ranks = run(task, out, start=run_ranks, make_model=None, seed=0, die_after=2)
    assert ranks[0].status is None
    return out


def without_time(log):
    return [{name: value for name, value in epoch.items() if name != "elapsed_time"} for epoch in log]


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_killed_run_goes_on_bit_for_bit(task, whole, killed, epoch, tmp_path):
    assert sorted(os.listdir(killed)) == ["log", "snapshot_epoch_1", "snapshot_epoch_2"]
    resumed = run(task, tmp_path, "--resume", killed / f"snapshot_epoch_{epoch}", make_model=None, seed=99)
    for before, after in zip(whole[1], resumed):
        assert after.final.keys() == before.final.keys()
        for name, array in before.final.items():
            assert numpy.array_equal(after.final[name], array), name
    assert not numpy.array_equal(whole[1][0].initial["0.0.weight"], resumed[0].initial["0.0.weight"])
    assert without_time(resumed[0].log) == without_time(whole[1][0].log)
    assert len(resumed[0].log) == EPOCHS
    for number in range(epoch + 1, EPOCHS + 1):
        states = [torch.load(folder / f"snapshot_epoch_{number}", weights_only=True) for folder in (whole[0], tmp_path)]
        assert_equal(states[0]["models"], states[1]["models"])
        assert_equal(states[0]["optimizers"], states[1]["optimizers"])


def assert_equal(one, other):
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other):
            assert_equal(*pair)
    else:
        assert one == other


def test_a_resumed_run_counts_the_images_of_its_own_epochs(task, killed, tmp_path):
    trainings = run(task, tmp_path, "--resume", killed / "snapshot_epoch_1")
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["images"] == sum(len(batch) for training in trainings for batch in training.batches) == 3 * 41


def refusal(task, tmp_path, *words, **how):
    """The one sentence, which only one rank says, of a run that must not start."""
    ranks = run(task, tmp_path, *words, start=run_ranks, **how)
    assert [rank.status for rank in ranks] == [2] * task[1], ranks
    [sentence] = filter(None, (rank.errors for rank in ranks))
    assert sentence.count("\n") == 1 and sentence.endswith("\n")
    assert not (tmp_path / "result.json").exists()
    return sentence


def test_a_complete_run_is_not_resumed(task, whole, tmp_path):
    assert f"is already at epoch {EPOCHS}" in refusal(task, tmp_path, "--resume", whole[0] / f"snapshot_epoch_{EPOCHS}")


@pytest.mark.parametrize("batchsize", [4, 5, 16, 100])
def test_a_snapshot_of_another_batch_size_is_refused(task, whole, batchsize, tmp_path):
    """Also where the steps of two epochs happen to make a whole number of the other batch size's epochs."""
    sentence = refusal(task, tmp_path, "-b", batchsize, "--resume", whole[0] / "snapshot_epoch_2")
    assert "another data set, batch size or number of workers" in sentence


@pytest.mark.parametrize("kind", ["bytes", "empty", "truncated", "a list", "a model alone", "other names"])
def test_a_file_that_is_no_snapshot_is_refused(task, whole, kind, tmp_path):
    path, snapshot = tmp_path / "some file", whole[0] / "snapshot_epoch_2"
    content = torch.load(snapshot, weights_only=True)
    if kind == "bytes":
        path.write_bytes(b"GIF89a" * 100)
    elif kind == "empty":
        path.touch()
    elif kind == "truncated":
        path.write_bytes(snapshot.read_bytes()[:1000])
    elif kind == "a list":
        torch.save([1, 2, 3], path)
    elif kind == "a model alone":
        torch.save(content["models"]["main"], path)
    else:
        content["models"]["main"] = {f"module.{name}": tensor for name, tensor in content["models"]["main"].items()}
        torch.save(content, path)
    assert "damaged, or no snapshot of this training" in refusal(task, tmp_path, "--resume", path)


def test_a_snapshot_that_would_execute_code_is_refused(task, tmp_path):
    path = tmp_path / "evil"
    torch.save({"models": Evil(tmp_path / "executed")}, path)
    assert "no snapshot of this training" in refusal(task, tmp_path, "--resume", path)
    assert not (tmp_path / "executed").exists()


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_rank_without_the_snapshot_stops_all(tmp_path):
    """A node may have other files than rank 0's."""
    on_ranks(train, 2, "multi_node", [*WORDS, "-e", 1, "-o", tmp_path], image_set(41), image_set(9, seed=1))
    ranks = run_ranks(
        train_with_a_snapshot_on_rank_0, 2, [*WORDS, "-o", tmp_path], tmp_path / "snapshot_epoch_1", tmp_path / "none"
    )
    assert [rank.status for rank in ranks] == [2, 2]
    assert "".join(rank.errors for rank in ranks).count("\n") == 1


def train_with_a_snapshot_on_rank_0(comm, words, snapshot, none):
    words = [*words, "--resume", none if comm.rank else snapshot]
    return train(comm, "multi_node", words, image_set(41), image_set(9, seed=1))
