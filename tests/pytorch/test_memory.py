"""The memory of a virtual GPU: networks whose parameters, gradients, optimizer state and activations are known to the
byte."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from ranks import on_ranks
from torch import nn
from torch.utils.checkpoint import checkpoint

from handson.pytorch.memory_counter import Counter, OutOfMemory

WIDTH, LAYERS, BATCH = 16, 6, 100
LAYER, OUTPUT = 4 * WIDTH * WIDTH, 4 * BATCH * WIDTH  # bytes of a layer's parameters, and of what it computes
NETWORK = LAYERS * LAYER


def chain():
    """Layers without bias or non-linearity: each keeps for its backward what it got, and nothing else."""
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def train(make_optimizer, limit=math.inf, steps=4, forward=lambda network, batch: network(batch)):
    """Some steps of a chain in a new Counter, which is returned."""
    with Counter(limit) as counter:
        network = chain()
        optimizer = make_optimizer(network.parameters())
        for _ in range(steps):
            optimizer.zero_grad()
            forward(network, torch.randn(BATCH, WIDTH)).sum().backward()
            optimizer.step()
        counter.kept = network, optimizer
    return counter


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.01, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, 0.01)


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [(lambda parameters: torch.optim.SGD(parameters, 0.01), 0), (sgd, NETWORK), (adam, 2 * NETWORK)],
    ids=("SGD", "SGD with momentum", "Adam"),
)
def test_parameters_gradients_and_state_are_counted_to_the_byte_and_as_the_formulas_say(optimizer, state):
    counter = train(optimizer)
    assert counter.in_use == {"parameters": NETWORK, "gradients": NETWORK, "optimizer": state, "activations": 0}
    assert counter.predicted() == {"parameters": NETWORK, "gradients": NETWORK, "optimizer": state, "activations": None}
    assert {part: counter.most[part] for part in ("parameters", "gradients", "optimizer")} == {
        "parameters": NETWORK,
        "gradients": NETWORK,
        "optimizer": state,
    }


def test_what_forward_keeps_is_the_batch_and_the_output_of_each_layer():
    with Counter() as counter:
        network = chain()
        output = network(torch.randn(BATCH, WIDTH))
        assert counter.in_use["activations"] == (LAYERS + 1) * OUTPUT
        with torch.no_grad():
            network(torch.randn(BATCH, WIDTH))
        assert counter.in_use["activations"] == (LAYERS + 1) * OUTPUT, "without backward, nothing is kept"
        output.sum().backward()
        assert counter.in_use["activations"] == OUTPUT, (
            "backward has freed all but the output, which this test still has"
        )
        assert counter.in_use["gradients"] == NETWORK


def test_activation_checkpointing_keeps_the_input_of_each_segment_alone():
    def halves(network, batch):
        for half in network[: LAYERS // 2], network[LAYERS // 2 :]:
            batch = checkpoint(half, batch, use_reentrant=False)
        return batch

    with Counter() as counter:
        network = chain()
        output = halves(network, torch.randn(BATCH, WIDTH))
        assert counter.in_use["activations"] == 3 * OUTPUT, "the batch, the first half's output, and the second's"
        output.sum().backward()
    whole, in_halves = train(sgd), train(sgd, forward=halves)
    assert in_halves.in_use == whole.in_use
    assert sum(whole.peak.values()) - sum(in_halves.peak.values()) >= OUTPUT


def test_a_limit_of_exactly_the_peak_is_enough_and_a_byte_less_is_not():
    highest = train(adam).highest
    assert train(adam, limit=highest).highest == highest
    with pytest.raises(OutOfMemory):
        train(adam, limit=highest - 1)


def test_the_sentence_says_what_was_asked_for_what_is_in_use_and_what_holds_it():
    with pytest.raises(torch.cuda.OutOfMemoryError) as error:  # the class that code for GPUs expects
        train(sgd, limit=NETWORK + 3 * OUTPUT)
    assert (
        str(error.value)
        == "virtual GPU is out of memory: mm tried to allocate 6.2 KiB, but 0 B of 24.8 KiB are free; in use are"
        " parameters 6.0 KiB, gradients 0 B, optimizer 0 B, activations 18.8 KiB: take a smaller batch (-b) or smaller"
        " images (--size), or a GPU with more memory (--gpu-memory)"
    )
    assert (error.value.asked, error.value.in_use["activations"]) == (OUTPUT, 3 * OUTPUT)


def test_what_far_exceeds_the_machine_is_refused_with_the_same_sentence():
    with (
        pytest.raises(OutOfMemory, match="empty tried to allocate 4096.0 TiB|empty tried to allocate 4194304.0 GiB"),
        Counter(2**20),
    ):
        torch.empty(2**50)


def test_a_caught_error_leaves_room_for_a_smaller_batch():
    with Counter(NETWORK + 10 * OUTPUT) as counter:
        network = chain()
        for batch in 4 * BATCH, BATCH:
            try:
                network(torch.randn(batch, WIDTH))
            except OutOfMemory:
                assert batch == 4 * BATCH
        assert counter.in_use["activations"] == 0 and counter.in_use["parameters"] == NETWORK


def test_views_and_changes_in_place_take_nothing_and_resized_tensors_what_they_have_now():
    resize = torch.UntypedStorage.resize_
    with Counter() as counter:
        tensor = torch.zeros(1000)
        kept = [tensor.view(10, 100), tensor[5:], tensor.reshape(100, 10).T, tensor.add_(1), tensor.detach()]
        assert counter.total == 4000
        tensor.resize_(2000)
        assert counter.total == 8000
        tensor.untyped_storage().resize_(0)  # as sharded networks free their parameters
        assert counter.total == 0 and kept
        tensor.untyped_storage().resize_(400)
        del kept, tensor
        assert counter.total == 0
    assert torch.UntypedStorage.resize_ is resize, "as it was before"


def test_buffers_and_frozen_parameters_have_no_gradients():
    with Counter() as counter:
        network = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False), nn.BatchNorm1d(WIDTH))
        network(torch.randn(BATCH, WIDTH)).sum().backward()
    own = 4 * WIDTH * 2  # of the normalisation: a factor and an addend for each column
    statistics = 4 * WIDTH * 2 + 8  # and two buffers, and the number of batches
    assert counter.in_use["parameters"] == LAYER + own + statistics and counter.in_use["gradients"] == own
    assert counter.predicted()["gradients"] == own


def test_a_step_is_kept_moment_by_moment_with_its_phases():
    counter = train(sgd)
    assert [phase for phase, _ in itertools.groupby(moment[1] for moment in counter.step)] == [
        "forward",
        "backward",
        "optimize",
    ]
    assert max(sum(moment[2:]) for moment in counter.step) == counter.highest, "the third step is like all that follow"
    assert [moment[0] for moment in counter.step] == sorted(moment[0] for moment in counter.step)


def replicated_and_sharded(comm):
    """What a rank of DistributedDataParallel and one of fully_shard have in use after a step, and by the formulas."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh, found = init_device_mesh("cpu", (comm.size,)), []
    for wrap in nn.parallel.DistributedDataParallel, lambda network: fully_shard(network, mesh=mesh):
        with Counter() as counter:
            network = wrap(chain())
            optimizer = adam(network.parameters())
            for _ in range(3):
                network(torch.randn(BATCH, WIDTH)).sum().backward()
                optimizer.step()
        found.append((counter.in_use.copy(), counter.predicted()))
    return found


def test_buckets_are_gradients_and_of_a_sharded_network_each_rank_counts_its_part():
    for of_rank in on_ranks(replicated_and_sharded, 2):
        for (in_use, predicted), shards, copies in zip(of_rank, (1, 2), (2, 1)):
            expected = {
                "parameters": NETWORK / shards,
                "gradients": copies * NETWORK / shards,
                "optimizer": 2 * NETWORK / shards,
            }
            assert in_use == expected | {"activations": 0} and predicted == expected | {"activations": None}


def test_results_are_the_same_with_and_without_counting():
    def loss_after_two_steps():
        torch.manual_seed(0)
        network = chain()
        optimizer = sgd(network.parameters())
        for _ in range(2):
            loss = F.mse_loss(network(torch.ones(BATCH, WIDTH)), torch.zeros(BATCH, WIDTH))
            loss.backward()
            optimizer.step()
        return loss.item()

    with Counter():
        counted = loss_after_two_steps()
    assert counted == loss_after_two_steps()
