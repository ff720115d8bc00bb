"""The scripts of Lightning and Accelerate against the oracle: 1, 2 and 4 workers make the steps of one process with all
images of each step."""

import pickle
import shutil
import socket

import numpy
import oracle
import pytest
import torch
from forked import Script

from handson.cluster.follow import follow, submit
from handson.pytorch.model import ConvNet
from handson.training import data, results

pytestmark = pytest.mark.thorough
UNIT = oracle.SOLUTIONS.parent
SCRIPTS = [UNIT / "lightning/train_cifar_lightning.py", UNIT / "accelerate/train_cifar_accelerate.py"]
SIZE, EPOCHS, BATCH, RATE, IMAGES, TEST = 64, 2, 4, 0.01, 27, 8  # all ranks have equally many test images


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


def steps_of(noted, train_set):
    """For each epoch, the numbers of the images of each rank in each step. noted: the files of the ranks."""
    numbers = {image.numpy().tobytes(): number for number, image in enumerate(train_set.images)}
    assert len(numbers) == IMAGES
    of_ranks = [pickle.loads(path.read_bytes()) for path in noted]
    steps = [[[numbers[image.tobytes()] for image in part] for part in parts] for parts in zip(*of_ranks, strict=True)]
    epochs = steps[: len(steps) // EPOCHS], steps[len(steps) // EPOCHS :]
    for epoch in epochs:  # each image, and as many more as make the ranks' parts equal
        used = [number for parts in epoch for part in parts for number in part]
        assert {*used} == {*range(IMAGES)} and len(used) < IMAGES + BATCH * len(noted)
        assert all(len(part) == len(parts[0]) for parts in epoch for part in parts)
    assert epochs[0] != epochs[1]
    return epochs


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.parent.name)
def test_workers_make_the_steps_of_one_big_batch(path, workers, few, tmp_path):
    """Started as torchrun starts them. With another scale of the loss, or without all ranks' gradients, the evaluations
    differ."""
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
    noted = [tmp_path / f"steps{rank}" for rank in range(workers)]
    ranks = [
        Script(path, tmp_path / str(rank), *words, NOTED=str(noted[rank]), **given[rank]) for rank in range(workers)
    ]
    for rank in ranks:
        assert rank.ended().status == 0, rank.errors
    log = results.read(tmp_path / "out").log
    torch.manual_seed(0)
    train_set, test_set = data.load(few)
    right = oracle.by_torch(
        ConvNet(), steps_of(noted, train_set), train_set, test_set, SIZE, RATE, statistics=lambda values: values[0]
    )
    assert [row["validation/main/loss"] for row in log] == pytest.approx(right[:, 1], rel=1e-3)
    assert right[1, 1] != pytest.approx(right[0, 1], rel=0.005)


def test_lightning_trains_on_two_nodes_of_a_job(few, tmp_path, monkeypatch, capsys):
    """A rank on each, as run_script.sh asks for: they meet through the nodes' network, not the loopback interface."""
    monkeypatch.setenv("HANDSON_PBS_HOME", str(tmp_path / "pbs"))
    shutil.copy(UNIT / "run_script.sh", tmp_path)
    options = f"-e 1 -b {BATCH} --size {SIZE} --dataset {few} -o out"
    follow(submit(tmp_path, "-j", "oe", "run_script.sh", SCRIPT=str(SCRIPTS[0]), OPTIONS=options))
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if "Warning" in line and "other programs took" not in line]
    result = results.read(tmp_path / "out")
    assert result.workers == 2
    assert result.device.startswith("2 virtual GPUs")
