"""Accumulation, checkpointing and sharded state of unit model_parallel: they train as the network does without them,
and need the memory they should."""

import json
import os
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from environments import QUICK_START
from loading import load
from ranks import on_ranks
from torch.utils.data import DataLoader
from waiting import run_to_end

from handson.errors import TrackError
from handson.pytorch import transformer_runs
from handson.pytorch.memory_counter import Counter
from handson.pytorch.transformer import Transformer

SCRIPTS = Path(__file__).resolve().parents[2] / "solutions/06_model_parallel/pytorch"
MPIEXEC = str(Path(sys.executable).with_name("mpiexec"))
STEPS, IMAGES = 3, 12  # IMAGES: of a step, on all ranks together


def solution(script):
    return load(SCRIPTS / f"{script}.py")


def network(width=12, **options):
    torch.manual_seed(0)
    return Transformer(width=width, heads=2, blocks=3, **options).double()


def batch(step, images=IMAGES):
    generator = torch.Generator().manual_seed(step)
    return torch.rand(images, 3, 8, 8, dtype=torch.float64, generator=generator), torch.randint(
        10, (images,), generator=generator
    )


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def trained(forward_and_backward):
    """The parameters after some steps on one rank, where forward_and_backward(model, images, labels) leaves the
    gradients; and the losses."""
    model, losses = network(), []
    optimizer = adam(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        losses.append(forward_and_backward(model, *batch(step)).item())
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]), torch.tensor(losses)


def plainly(model, images, labels):
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    return loss


@pytest.mark.parametrize("parts", [1, 2, *[pytest.param(parts, marks=pytest.mark.thorough) for parts in (5, 12)]])
def test_accumulation_and_checkpointing_train_as_the_batch_in_one_piece(parts):
    saving = solution("save_memory")

    def both(model, images, labels):
        return saving.accumulate(lambda images: saving.checkpointed(model, images), images, labels, parts)

    for found, right in zip(trained(both), trained(plainly)):
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)


def test_they_hold_the_activations_that_the_formulas_say():
    saving, width, blocks, tokens = solution("save_memory"), 64, 6, 16
    images, labels = torch.rand(32, 3, 8, 8), torch.randint(10, (32,))
    widths = 4 * width * tokens * len(images)  # bytes of one width of all tokens

    def held(forward_and_backward):
        with Counter() as counter:
            model = Transformer(width=width, heads=2, blocks=blocks)
            forward_and_backward(model)
        return counter.most["activations"]

    assert held(lambda model: plainly(model, images, labels)) == pytest.approx(16 * blocks * widths, rel=0.1)
    assert held(lambda model: saving.accumulate(model, images, labels, 4)) == pytest.approx(
        16 * blocks * widths / 4, rel=0.15
    )
    checkpointed = held(lambda model: F.cross_entropy(saving.checkpointed(model, images), labels).backward())
    assert checkpointed == pytest.approx((blocks + 15) * widths, rel=0.35)  # gradients are on their way, too


@pytest.mark.parametrize(
    ("method", "widths"),
    [("torch-checkpoint", 6 + 15), ("checkpoint-every-2nd", 3 * (1 + 16)), ("checkpoint-selected", 6 * 11 + 7)],
)
def test_selective_checkpointing_has_equal_gradients_and_the_memory_of_its_formula(method, widths):
    _, forward = solution("train_memory").METHODS[method]
    model, images, labels = Transformer(width=64, heads=2, blocks=6), torch.rand(32, 3, 8, 8), torch.randint(10, (32,))

    def gradients(forward):
        model.zero_grad()
        with Counter() as counter:
            F.cross_entropy(forward(model, images), labels).backward()
        found = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        return found, counter.most["activations"]

    found, held = gradients(forward)
    right, of_plain = gradients(lambda model, images: model(images))
    torch.testing.assert_close(found, right)
    of_width = 4 * 64 * 16 * len(images)
    assert of_plain - held == pytest.approx((6 * 16 - widths) * of_width, rel=0.1)


def sharded(comm):
    """The parameters after some steps of ZeRO, and the bytes of the optimizer's state: counted, and of the whole
    network."""
    zero = solution("zero")
    with Counter() as counter:
        model = network()
        shards = zero.divide(model, adam)
        for step in range(STEPS):
            images, labels = (part.tensor_split(comm.size)[comm.rank] for part in batch(step))
            F.cross_entropy(model(images), labels).backward()
            zero.step(shards)
    parameters = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return parameters, counter.most["optimizer"], 2 * parameters.nbytes


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_zero_trains_as_one_process_with_all_images_and_keeps_its_share_of_the_state(size):
    right, _ = trained(plainly)
    for parameters, state, whole in on_ranks(sharded, size):
        torch.testing.assert_close(parameters, right, rtol=1e-9, atol=1e-9)
        assert state == pytest.approx(whole / size, rel=0.02)


def script(name, ranks, *words):
    command = [MPIEXEC, "-n", str(ranks), sys.executable, SCRIPTS / f"{name}.py", *map(str, words)]
    return run_to_end(command, env=os.environ | QUICK_START)


SMALL = ("--epoch", 1, "--batchsize", 240, "--width", 32, "--blocks", 2)


@pytest.mark.thorough
def test_all_ways_to_divide_the_state_learn_the_same_and_need_less_than_ddp(tmp_path):
    ran = script("train_sharded", 2, "--method", "all", *SMALL, "--gpu-memory", "unlimited", "--out", tmp_path)
    assert ran.returncode == 0, ran.stderr
    runs = {
        method: json.loads((tmp_path / f"{method}_0/result.json").read_text())
        for method in ("ddp", "zero", "torch-zero", "fsdp", "fsdp-gathered", "fsdp-bfloat16")
    }
    losses = [run["log"][-1]["main/loss"] for run in runs.values()]
    *in_float32, in_bfloat16 = losses
    assert in_float32 == pytest.approx([losses[0]] * 5, rel=1e-4)
    assert in_bfloat16 == pytest.approx(losses[0], rel=0.02) and in_bfloat16 != losses[0]
    assert {method: [account["rank"] for account in run["memory"]] for method, run in runs.items()} == dict.fromkeys(
        runs, [0, 1]
    )
    state = {method: max(account["most"]["optimizer"] for account in run["memory"]) for method, run in runs.items()}
    assert state["zero"] == pytest.approx(state["ddp"] / 2, rel=0.02)
    assert state["fsdp"] == pytest.approx(state["ddp"] / 2, rel=0.02)
    assert state["fsdp-bfloat16"] == state["fsdp"]  # Adam works on the float32 masters
    assert state["torch-zero"] < 0.6 * state["ddp"]  # it divides whole tensors
    peaks = {method: max(sum(account["peak"].values()) for account in run["memory"]) for method, run in runs.items()}
    assert peaks["zero"] < peaks["ddp"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--gpu-memory", "100KB"), "out of memory"),
        (("--batchsize", 4, "--method", "accumulate-8"), "too few for 8 micro-batches"),
    ],
)
def test_what_cannot_be_trained_ends_with_one_sentence(tmp_path, words, sentence):
    ran = script("train_memory", 1, *SMALL, *words, "--out", tmp_path)
    assert ran.returncode != 0 and sentence in ran.stderr, ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"heads": 3}, "cannot be divided among 3 heads"),
        ({"patch": 3}, "cannot be split into patches of 3 pixels"),
        ({"batchsize": 99}, "no step"),
    ],
)
def test_sizes_that_do_not_fit_each_other_are_refused(options, sentence):
    args = Namespace(**dict(width=32, heads=2, blocks=1, patch=2, size=8, batchsize=4, seed=0) | options)
    loader = DataLoader(list(zip(*batch(0))), args.batchsize, drop_last=True)
    with pytest.raises(TrackError, match=sentence):
        next(
            transformer_runs.batches(loader, args, transformer_runs.network(args, 10).patches.position_embedding.device)
        )
