"""The pipelines of unit model_parallel on real ranks: equal to the unsplit network, in whatever order that can be done,
and holding no more than they must."""

import collections
import json
import math
import os
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from environments import QUICK_START
from loading import load
from ranks import on_ranks
from torch import nn
from waiting import run_to_end

from handson.notebook import model_parallel
from handson.pipelines import simulate
from handson.pytorch import stages, transformer
from handson.pytorch.memory_counter import Counter

SCRIPTS = Path(__file__).resolve().parents[2] / "solutions/06_model_parallel/pytorch"
MPIEXEC = str(Path(sys.executable).with_name("mpiexec"))
# IMAGES of a micro-batch; LAYERS on 2, 3 or 4 ranks are uneven stages
STEPS, MICRO_BATCHES, IMAGES, LAYERS = 3, 4, 2, 5


def solution(script):
    return load(SCRIPTS / f"{script}.py")


def layers(numbers, width=8):
    torch.manual_seed(0)
    return nn.Sequential(
        *[
            layer.double()
            for number, layer in enumerate(transformer.layers(width=width, heads=2, blocks=LAYERS - 2))
            if number in numbers
        ]
    )


def batch(step, micro_batches=MICRO_BATCHES):
    generator = torch.Generator().manual_seed(step)
    images = torch.rand(micro_batches * IMAGES, 3, 8, 8, dtype=torch.float64, generator=generator)
    return images, torch.randint(10, (micro_batches * IMAGES,), generator=generator)


def orders(size):
    """name -> the operations of each stage."""
    schedules = solution("schedules")
    found = {
        name: [getattr(schedules, name)(stage, size, MICRO_BATCHES) for stage in range(size)]
        for name in ("gpipe", "one_forward_one_backward")
    }
    found["naive"] = [["F0", "B0"]] * size
    found["the last one first"] = [["F3", "F2", "B3", "F1", "B2", "F0", "B1", "B0"]] + [
        ["F3", "B3", "F2", "B2", "F1", "B1", "F0", "B0"]
    ] * (size - 1)
    return found


def parameters(network):
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def trained(comm):
    """{name of the order: (losses, parameters of this stage)} after some steps of each, from scratch and by
    torch.distributed.pipelining."""
    pipeline, torch_pipeline, found = solution("pipeline"), solution("torch_pipeline"), {}
    of_torch_alone = dict.fromkeys(("torch-gpipe", "torch-1f1b"))
    if comm.size == 2:  # LAYERS are too few for two chunks on more ranks
        of_torch_alone |= dict.fromkeys(("torch-interleaved", "torch-zero-bubble"))
    for name, schedule in (orders(comm.size) | of_torch_alone).items():
        micro_batches, losses = 1 if name == "naive" else MICRO_BATCHES, []
        chunks = 2 if name in ("torch-interleaved", "torch-zero-bubble") else 1
        network = nn.ModuleList(
            layers(pipeline.my_layers(LAYERS, chunk * comm.size + comm.rank, chunks * comm.size))
            for chunk in range(chunks)
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        like = torch.empty(MICRO_BATCHES * IMAGES // micro_batches, 16, 8, dtype=torch.float64)
        if schedule is None:
            arguments = MICRO_BATCHES, F.cross_entropy, torch.device("cpu")
            if chunks == 1:
                of_torch = torch_pipeline.make_schedule(name.removeprefix("torch-"), network[0], *arguments)
            else:
                of_torch = torch_pipeline.make_interleaved(name.removeprefix("torch-"), network, *arguments)
                order = stages.order(of_torch)
                assert simulate(order).chunks == 2 and ("W0.1" in order[0]) == (name == "torch-zero-bubble")
        for step in range(STEPS):
            images, labels = batch(step)
            optimizer.zero_grad()
            if schedule is None:
                loss = stages.torch_step(of_torch, images, labels)
            else:
                loss = pipeline.step(
                    schedule[comm.rank],
                    network[0],
                    images.chunk(micro_batches),
                    labels.chunk(micro_batches),
                    like,
                    F.cross_entropy,
                )
            optimizer.step()
            losses.append(float(stages.of_last_rank(loss)))
        found[name] = losses, [parameters(one) for one in network]
    return found


@pytest.mark.parametrize("size", [1, 2, 3, pytest.param(4, marks=pytest.mark.thorough)])
def test_every_order_trains_as_the_unsplit_network(size):
    whole, losses = layers(range(LAYERS)), []
    optimizer = torch.optim.Adam(whole.parameters(), lr=0.01)
    for step in range(STEPS):
        images, labels = batch(step)
        optimizer.zero_grad()
        loss = F.cross_entropy(whole(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    of_ranks = on_ranks(trained, size)
    for name in of_ranks[0]:
        in_order = [chunk for chunks in zip(*(of_rank[name][1] for of_rank in of_ranks)) for chunk in chunks]
        assert torch.allclose(torch.cat(in_order), parameters(whole), rtol=0, atol=1e-5), name
        assert of_ranks[0][name][0] == pytest.approx(losses, abs=1e-5), name


def held(comm):
    """The most bytes of activations of this stage: with GPipe and 1, 2 and 8 micro-batches of the same size, and with
    1F1B and 8."""
    pipeline, schedules, found = solution("pipeline"), solution("schedules"), []
    for order, micro_batches in (
        (schedules.gpipe, 1),
        (schedules.gpipe, 2),
        (schedules.gpipe, 8),
        (schedules.one_forward_one_backward, 8),
    ):
        images, labels = batch(0, micro_batches)
        with Counter(math.inf) as counter:
            network = layers(pipeline.my_layers(LAYERS, comm.rank, comm.size), width=32)
            like = torch.empty(IMAGES, 16, 32, dtype=torch.float64)
            operations = order(comm.rank, comm.size, micro_batches)
            pipeline.step(
                operations, network, images.chunk(micro_batches), labels.chunk(micro_batches), like, F.cross_entropy
            )
            found.append(counter.most["activations"])
    return found


def test_1f1b_holds_the_activations_of_as_many_micro_batches_as_stages_follow_and_its_own():
    (one, two, eight, alternating), (last_one, _, last_eight, last_alternating) = on_ranks(held, 2)
    of_one = two - one
    assert eight == pytest.approx(one + 7 * of_one, rel=0.05)
    assert alternating == two, "to the byte"
    assert last_alternating == pytest.approx(last_one, rel=0.001)
    assert last_eight > 4 * last_one


def batches(comm):
    """{name of the order: the messages (from, to) that this rank sends and receives in a step, a list for each
    batch}."""
    pipeline, original, found = solution("pipeline"), dist.batch_isend_irecv, {}

    def noted(messages):
        assert not any(message.tag for message in messages), "NCCL has no tags"
        sides = ((message.op is dist.isend, message.peer) for message in messages)
        found[name].append([(comm.rank, peer) if sends else (peer, comm.rank) for sends, peer in sides])
        return original(messages)

    for name, schedule in orders(comm.size).items():
        micro_batches, found[name] = 1 if name == "naive" else MICRO_BATCHES, []
        images, labels = (part.chunk(micro_batches) for part in batch(0))
        network, like = (
            layers(pipeline.my_layers(LAYERS, comm.rank, comm.size)),
            torch.empty(len(images[0]), 16, 8, dtype=torch.float64),
        )
        with mock.patch.object(dist, "batch_isend_irecv", noted):
            pipeline.step(schedule[comm.rank], network, images, labels, like, F.cross_entropy)
    return found


def exchanged(comm):
    """The memories of the messages of this rank, and of what has arrived. A device that has no numbers stands in for a
    GPU."""
    pipeline, original, memories = solution("pipeline"), dist.P2POp, []

    def noted(sends, tensor, peer):
        memories.append(tensor.device.type)
        return original(sends, tensor, peer)

    sides = [(torch.ones(3), 1, None), (None, None, 0)][comm.rank]
    with mock.patch.object(dist, "P2POp", noted):
        arrived = pipeline.exchange(*sides[:2], torch.empty(3, device="meta"), sides[2])
    return memories, arrived is not None and arrived.device.type


def test_gloo_gets_messages_in_the_memory_of_the_host():
    """It refuses those of a GPU ("writev: Bad address"), as that of ranks which share one."""
    assert on_ranks(exchanged, 2) == [(["cpu"], False), (["cpu"], "meta")]


def test_a_method_that_gloo_cannot_do_on_a_gpu_is_left_out(capsys):
    gpu, core = torch.device("cuda", 0), torch.device("cpu")
    with mock.patch.multiple(dist, get_backend=lambda: "gloo", get_rank=lambda: 0):
        assert not stages.left_out("gpipe", gpu) and not stages.left_out("torch-gpipe", core)
        assert not capsys.readouterr().out
        assert stages.left_out("torch-gpipe", gpu) and "torch-gpipe is left out" in capsys.readouterr().out
    with mock.patch.object(dist, "get_backend", lambda: "cpu:gloo,cuda:nccl"):
        assert not stages.left_out("torch-gpipe", gpu)


def numbered(batches):
    """Each message of one rank's batches with its number among those from the same rank to the same rank."""
    count = collections.Counter()
    for messages in batches:
        count.update(messages)
        yield {(*message, count[message]) for message in messages}


@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=pytest.mark.thorough)])
def test_with_nccl_no_stage_would_wait_for_ever(size):
    """NCCL carries a rank's batches out one after the other, the messages of a batch at the same time; a message is
    done when both ranks have come to it, and it is known by its place in their order alone."""
    of_ranks = on_ranks(batches, size)
    for name in of_ranks[0]:
        left, taken = [list(numbered(of_rank[name])) for of_rank in of_ranks], set()
        while any(left):
            offered = collections.Counter(message for waiting in left for message in (waiting[0] if waiting else ()))
            taken.update(message for message, ranks in offered.items() if ranks == 2)
            after = [waiting[1:] if waiting and waiting[0] <= taken else waiting for waiting in left]
            assert after != left, f"{name}: {offered}"
            left = after
        each_way = (1 if name == "naive" else MICRO_BATCHES) * 2 * (size - 1)
        assert len(taken) == each_way, f"{name}: all messages go in batches"


def script(out, ranks, *words):
    command = [
        MPIEXEC,
        "-n",
        str(ranks),
        sys.executable,
        "pytorch/train_pipeline.py",
        "-o",
        out,
        *"--width 16 --epoch 1".split(),
        *words,
    ]
    return run_to_end(command, cwd=SCRIPTS.parent, env=os.environ | QUICK_START)


@pytest.mark.thorough
def test_the_script_trains_and_measures_a_step(tmp_path):
    ended = script(tmp_path, 2, "--method", "1f1b", "--blocks", "1", "--gpu-memory", "unlimited")
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "1f1b_0/result.json").read_text())
    assert result["images"] == 1472 and len(result["memory"]) == 2
    timeline = model_parallel.timeline(tmp_path / "1f1b_0")
    assert [[name for stage, name, *_ in timeline.operations if stage == one] for one in range(2)] == timeline.schedule
    assert 0 < timeline.bubble < 1 and "ms" in timeline.unit
    assert all(0 <= one.begin < one.end for one in timeline.operations)
    assert len(model_parallel.held(tmp_path / "1f1b_0")) == 2


@pytest.mark.thorough
def test_more_stages_than_layers_end_the_script_with_one_sentence(tmp_path):
    ended = script(tmp_path, 4, "--blocks", "1")
    sentence = "train_pipeline.py: 3 layers cannot be split into 4 stages: start 3 ranks at most, or give the network more --blocks"
    assert (ended.returncode, ended.stderr.strip()) == (2, sentence)
