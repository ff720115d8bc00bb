"""CNTK's vocabulary: every name of the documents, updates by their definitions, checkpoints that lose nothing, one
sentence for what is wrong."""

import json
import os
import re
import sys
from pathlib import Path
from unittest import mock

import numpy
import pytest
import torch
from environments import QUICK_START
from ranks import on_ranks
from waiting import run_to_end

from grader.probes.gloo_for_chainermn import Group
from grader.units.communication.oracles import oracle_cntk as oracle
from grader.units.communication.probes import probe_cntk as probes
from handson import cntk
from handson.cntk import checkpoint_files, workers
from handson.errors import OneSentence, TrackError
from handson.pytorch.checkpoints import CheckpointError
from handson.training import map_files

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "solutions/05_communication/pytorch/train_cntk.py"
CASE = {"seed": 5, "samples": 20, "minibatch": 9, "max_samples": 40, "lr": 0.1, "bits": 32, "warm_up": 0}
CASE |= {"block_size": 0}


def test_a_name_that_is_missing_is_one_sentence():
    with pytest.raises(
        AttributeError, match="handson.cntk has no 'layers': it has only the names in CNTK's documents .*; use PyTorch"
    ):
        cntk.layers
    assert issubclass(cntk.Missing, OneSentence) and not hasattr(cntk, "relu")
    with pytest.raises(ImportError):
        from handson.cntk import relu  # noqa: F401


def learner(case, model):
    local = probes.local_learner(model, case)
    if case["block_size"]:
        more = {
            "use_nestrov_momentum": case.get("nesterov", True),
            "reset_sgd_momentum_after_aggregation": case.get("reset", True),
            "distributed_after": case["warm_up"],
        }
        return cntk.block_momentum_distributed_learner(local, case["block_size"], **more)
    return cntk.data_parallel_distributed_learner(
        local, num_quantization_bits=case["bits"], distributed_after=case["warm_up"]
    )


def trained(comm, case, folder, max_samples=None, config=None):
    """The parameters of this worker after a session, and the session's trainer."""
    model = probes.network(case["seed"] % 1000, probes.PixelNet)
    source = probes.stream(folder / "train.txt", max_samples or case["max_samples"])
    streams = {"features": source.streams.features, "labels": source.streams.labels}
    trainer = cntk.Trainer(model, probes.CRITERION, learner(case, model))
    cntk.training_session(trainer, source, case["minibatch"], streams, checkpoint_config=config).train()
    return probes.flat(model.parameters())


def a_run(comm, case):
    with probes.together(comm.rank, comm.size, case) as folder:
        return trained(comm, case, folder)


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, 2, 3])
def test_with_32_bits_the_parameters_are_those_of_one_big_batch(in_folder, size):
    """Also with a last minibatch of two samples, of which a third worker gets none."""
    found = on_ranks(a_run, size, CASE)
    right = oracle.big_batch(0, 1, CASE | {"ranks": size})["parameters"]
    assert numpy.abs(numpy.stack(found) - right).max() < 1e-12


@pytest.mark.parametrize("warm_up", [pytest.param(0, marks=pytest.mark.thorough), 18])
def test_one_bit_is_what_its_definition_says(in_folder, warm_up):
    case = CASE | {"bits": 1, "warm_up": warm_up, "ranks": 3}
    assert numpy.abs(numpy.stack(on_ranks(a_run, 3, case)) - oracle.simulate(case)[:, -1]).max() < 1e-12


@pytest.mark.parametrize(
    "more",
    [
        {},
        pytest.param({"nesterov": False, "warm_up": 20}, marks=pytest.mark.thorough),
        pytest.param({"reset": False}, marks=pytest.mark.thorough),
    ],
)
def test_block_momentum_is_what_its_definition_says(in_folder, more):
    case = CASE | {"block_size": 20, "max_samples": 40, "samples": 20, "minibatch": 10, "ranks": 2} | more
    found = on_ranks(a_run, 2, case)
    assert numpy.abs(found[0] - found[1]).max() == 0
    if "nesterov" in more:  # else the training ends without the look ahead
        assert numpy.abs(numpy.stack(found) - oracle.simulate(case)[:, -1]).max() < 1e-12


def interrupted(comm, case, stop):
    """The parameters of a session that ends after `stop` samples and is restored, and those of one that does not."""
    with probes.together(comm.rank, comm.size, case) as folder:
        config = cntk.CheckpointConfig(Path("model.ckpt"), frequency=case["minibatch"])
        with mock.patch.object(cntk.Trainer, "train_minibatch", _until(stop)):
            with pytest.raises(KeyboardInterrupt):
                trained(comm, case, folder, config=config)
        return trained(comm, case, folder, config=config), trained(comm, case, folder)


def _until(stop):
    original = cntk.Trainer.train_minibatch

    def train_minibatch(trainer, arguments):
        if trainer.total_number_of_samples_seen >= stop:
            raise KeyboardInterrupt
        return original(trainer, arguments)

    return train_minibatch


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, marks=pytest.mark.thorough),
        {"bits": 1, "warm_up": 9},
        pytest.param({"block_size": 30}, marks=pytest.mark.thorough),
    ],
)
def test_a_restored_session_ends_as_an_uninterrupted_one(in_folder, more):
    """Number for number, also in the middle of an epoch and of a block."""
    for restored, whole in on_ranks(interrupted, 2, CASE | more | {"minibatch": 6}, 18):
        assert (restored == whole).all()


def restored_badly(comm, case, other):
    with probes.together(comm.rank, comm.size, case) as folder:
        trained(comm, case, folder, config=cntk.CheckpointConfig(Path("model.ckpt")))
        try:
            trained(comm, case | other, folder, config=cntk.CheckpointConfig(Path("model.ckpt")))
        except (TrackError, CheckpointError) as problem:
            return str(problem)


def test_a_residual_that_does_not_fit_is_one_sentence_with_the_worker(in_folder):
    for rank, sentence in enumerate(on_ranks(restored_badly, 2, CASE, {"bits": 1})):
        assert sentence.startswith(f"worker {rank}: the checkpoint has no residual, but the network has 130 parameters")


def unequal(comm, case):
    with probes.together(comm.rank, comm.size, case) as folder:
        try:
            trained(comm, case | {"seed": case["seed"] + comm.rank}, folder)
        except TrackError as problem:
            return str(problem)


def test_networks_that_differ_are_one_sentence(in_folder):
    for sentence in on_ranks(unequal, 2, CASE):
        assert sentence.startswith("the parameters of worker 1 differ from those of worker 0")
        assert "from the same seed" in sentence


def test_a_gradient_that_is_no_number_ends_the_training_with_the_worker():
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([1.0, float("nan")])
    with mock.patch.object(workers, "world", lambda: Group(1, range(2))):
        learner = cntk.data_parallel_distributed_learner(cntk.momentum_sgd([parameter], 0.1, 0.9))
        with pytest.raises(TrackError, match="worker 1: a gradient is infinite or NaN after 30 samples"):
            learner.update([1, 0.0, 0.0], 30)
    assert not parameter.any()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: cntk.data_parallel_distributed_learner(None, num_quantization_bits=4),
            "num_quantization_bits must be 1",
        ),
        (
            lambda: cntk.data_parallel_distributed_learner(None, use_async_buffered_parameter_update=True),
            "handson.cntk has no use_async",
        ),
        (
            lambda: cntk.training_session(None, None, [8, 16], dict.fromkeys(["features", "labels"])),
            "mb_size must be a whole number .*schedules",
        ),
        (lambda: cntk.block_momentum_distributed_learner(None, block_size=0), "block_size must be a number of samples"),
        (lambda: cntk.training_session(None, None, 8, {"features": 1}), "needs the inputs 'features' and 'labels'"),
    ],
)
def test_what_cannot_be_is_one_sentence(call, sentence):
    with mock.patch.object(workers, "world", lambda: Group(0, range(1))), pytest.raises(TrackError, match=sentence):
        call()


class Alone:
    """One worker."""

    rank, size = 0, 1
    gather = allgather = staticmethod(lambda thing: [thing])
    barrier = staticmethod(lambda: None)


def test_a_checkpoint_that_was_cut_off_leaves_the_one_before(tmp_path, capsys):
    path = tmp_path / "model.ckpt"
    for step in (1, 2):
        checkpoint_files.save(path, {"step": step}, {"residual": torch.ones(3)}, Alone)
    assert checkpoint_files.load(path, Alone)[0] == {"step": 2}
    path.write_bytes(path.read_bytes()[:100])
    assert checkpoint_files.load(path, Alone)[0] == {"step": 1}
    assert f"rank 0: the checkpoint {path} is cut off or damaged" in capsys.readouterr().err
    checkpoint_files.before(path).write_bytes(b"")
    with pytest.raises(
        CheckpointError,
        match="rank 0: the checkpoint .*model.ckpt is cut off .*no earlier checkpoint can be read: delete",
    ):
        checkpoint_files.load(path, Alone)


def test_a_write_that_fails_leaves_the_last_checkpoint(tmp_path):
    path = tmp_path / "model.ckpt"
    checkpoint_files.save(path, {"step": 1}, {}, Alone)
    with mock.patch.object(torch, "save", side_effect=OSError("No space left on device")), pytest.raises(OSError):
        checkpoint_files.save(path, {"step": 2}, {}, Alone)
    assert checkpoint_files.load(path, Alone)[0] == {"step": 1}
    assert [one.name for one in tmp_path.iterdir()] == ["model.ckpt"]


def mpiexec(data, out, *options):
    command = [Path(sys.executable).with_name("mpiexec"), "-n", "2", sys.executable, SCRIPT, "-o", out, *options]
    return run_to_end(command, env=os.environ | QUICK_START | {"HANDSON_DATA": str(data)})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    map_files.write("digits", folder / "digits_files", say=lambda line: None)
    return folder


@pytest.mark.thorough
def test_the_script_trains_by_mpiexec_and_leaves_a_checkpoint(data, tmp_path):
    first = mpiexec(data, tmp_path, "-e", "1", "-b", "100", "--bits", "1", "--warm-up", "400")
    assert first.returncode == 0, first.stderr
    assert "Finished Epoch[1 of 1]: [Training] loss = " in first.stdout and "Finished Evaluation [1]" in first.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["script"], result["images"], result["workers"]) == ("train_cntk", 1500, 2)
    assert checkpoint_files.exists(tmp_path / "model.ckpt")


@pytest.mark.thorough
def test_a_worker_whose_image_is_gone_ends_all_with_its_rank_and_the_file(data, tmp_path):
    broken = tmp_path / "digits_files"
    broken.mkdir()
    for name in ("train", "test"):
        (broken / name).symlink_to(data / "digits_files" / name)
        (broken / f"{name}.txt").write_text(
            (data / f"digits_files/{name}.txt").read_text().replace(f"{name}/00007.png", f"{name}/gone.png")
        )
    run = mpiexec(tmp_path, tmp_path / "out", "-e", "1")
    assert run.returncode and "Traceback" not in run.stderr
    assert "train/gone.png (train.txt, line 8) does not exist: restore it, or remove its line" in run.stderr
    assert re.search(r"rank \d on ", run.stderr)
