"""The scripts of Lightning and Accelerate against the oracle: 1, 2 and 4 workers make the steps of one process with all
images of each step."""

import shutil
import socket

import numpy
import oracle
import pytest
import torch
from forked import Script

from handson.cluster.follow import follow, submit
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.training import data, results

pytestmark = pytest.mark.thorough
UNIT = oracle.SOLUTIONS.parent
SCRIPTS = [UNIT / "lightning/train_cifar_lightning.py", UNIT / "accelerate/train_cifar_accelerate.py"]
SIZE, EPOCHS, BATCH, RATE, IMAGES, TEST = 64, 2, 4, 0.01, 27, 9


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A data set of 27 images, so that the ranks' parts are of unequal length."""
    path, everything = tmp_path_factory.mktemp("few") / "few.npz", numpy.load(data.EMBEDDED / "digits.npz")
    numbers = {"train": IMAGES, "test": TEST}
    cut = {
        f"{part}_{what}": everything[f"{part}_{what}"][:number]
        for part, number in numbers.items()
        for what in ("images", "labels")
    }
    numpy.savez(path, classes=everything["classes"], maximum=everything["maximum"], **cut)
    return path


def steps_of(workers):
    """Of each epoch, the numbers of the images of each rank in each step."""
    shards = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(0)).tensor_split(workers)
    batches = [EpochBatches(list(map(len, shards)), rank, BATCH, 0) for rank in range(workers)]
    epochs = []
    for epoch in range(EPOCHS):
        for of_rank in batches:
            of_rank.set_epoch(epoch)
        epochs.append([[shard[batch] for shard, batch in zip(shards, of_step)] for of_step in zip(*batches)])
    return epochs


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.parent.name)
def test_workers_make_the_steps_of_one_big_batch(path, workers, few, tmp_path):
    """Started as torchrun starts them. With another scale of the loss, another sampler, or a mean of the ranks' means,
    the evaluations differ."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    words = [
        "-e",
        EPOCHS,
        "-b",
        BATCH,
        "--size",
        SIZE,
        "--lr",
        RATE,
        "--dataset",
        few,
        "-o",
        tmp_path / "out",
        "-g",
        ",".join(map(str, range(workers))),
    ]
    job = {
        "WORLD_SIZE": workers,
        "LOCAL_WORLD_SIZE": workers,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": "test",
        "GROUP_RANK": 0,
    }
    given = [
        {name: str(value) for name, value in (job | {"RANK": rank, "LOCAL_RANK": rank}).items()}
        for rank in range(workers)
    ]
    ranks = [Script(path, tmp_path / str(rank), *words, **given[rank]) for rank in range(workers)]
    for rank in ranks:
        assert rank.ended().status == 0, rank.errors
    log = results.read(tmp_path / "out").log
    torch.manual_seed(0)
    right = oracle.by_torch(ConvNet(), steps_of(workers), *data.load(few), SIZE, RATE)
    assert [row["validation/main/loss"] for row in log] == pytest.approx(right[:, 1], rel=1e-3)
    assert right[1, 1] != pytest.approx(right[0, 1], rel=0.005)


def test_lightning_trains_on_two_nodes_of_a_job(few, tmp_path, monkeypatch, capsys):
    """A rank on each, as run_script.sh asks for: they meet through the nodes' network, not the loopback interface."""
    monkeypatch.setenv("HANDSON_PBS_HOME", str(tmp_path / "pbs"))
    shutil.copy(UNIT / "run_script.sh", tmp_path)
    options = f"-e 1 -b {BATCH} --size {SIZE} --dataset {few} -o out"
    follow(submit(tmp_path, "-V", "-j", "oe", "run_script.sh", SCRIPT=str(SCRIPTS[0]), OPTIONS=options))
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if "Warning" in line and "other programs took" not in line]
    result = results.read(tmp_path / "out")
    assert result.workers == 2
    assert result.device.startswith("2 virtual GPUs")
