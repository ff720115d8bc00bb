"""A transformer that is split in its products, among 1 to 4 ranks and on a mesh: as the whole one in one process, and
with as few all-reduces as it can."""

import copy
import re
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from loading import load
from ranks import numbers, on_ranks
from torch import nn
from torch.distributed.tensor.debug import CommDebugMode

from handson.errors import TrackError
from handson.notebook import runs
from handson.pytorch import products, sequences
from handson.pytorch.transformer import MLP, Transformer

SCRIPTS = Path(__file__).resolve().parents[2] / "solutions/06_model_parallel/pytorch"
STEPS, RATE, TOLERANCE = 3, 0.1, 1e-5
# what is divided in its outputs, and in its inputs
COLUMNS, ROWS = ("query", "key", "value", "up"), ("out.weight", "down.weight")


def solution(script):
    return load(SCRIPTS / f"{script}.py")


def transformer(heads=12):
    torch.manual_seed(5)
    return Transformer(width=24, heads=heads, blocks=2)


def batch(step, images=6):
    chance = torch.Generator().manual_seed(step)
    return torch.randn(images, 3, 8, 8, generator=chance).requires_grad_(), torch.randint(
        10, (images,), generator=chance
    )


def trained(model, batches):
    """The parameters after a step of SGD with each batch, and the all-reduces [forward, backward] of the last step."""
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for images, labels in batches:
        optimizer.zero_grad()
        with CommDebugMode() as forward:
            loss = F.cross_entropy(model(images), labels)
        with CommDebugMode() as backward:
            loss.backward()
        optimizer.step()
    return model, [forward.get_total_counts(), backward.get_total_counts()]


def of_the_whole(name):
    """The name in the whole network of a parameter of the split one."""
    return (
        name.replace(".part.", ".").replace("attention.bias", "attention.out.bias").replace("mlp.bias", "mlp.down.bias")
    )


def put_together(of_ranks):
    """{name in the whole network: array} of the ranks' parameters."""
    whole = {}
    for name in of_ranks[0]:
        parts = [of_rank[name] for of_rank in of_ranks]
        if any(f".{layer}." in name for layer in COLUMNS):
            whole[of_the_whole(name)] = numpy.concatenate(parts)
        elif name.endswith(ROWS):
            whole[of_the_whole(name)] = numpy.concatenate(parts, axis=1)
        else:
            for part in parts:
                numpy.testing.assert_allclose(part, parts[0], atol=TOLERANCE)
            whole[of_the_whole(name)] = parts[0]
    return whole


def assert_same(found, right):
    assert found.keys() == right.keys()
    for name in right:
        numpy.testing.assert_allclose(found[name], right[name], atol=TOLERANCE, err_msg=name)


def on_all(comm):
    model, counts = trained(solution("products").split(transformer()), [batch(step) for step in range(STEPS)])
    return numbers(model), counts


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_split_network_trains_as_the_whole_one_with_one_all_reduce_in_each_direction(size):
    found = on_ranks(on_all, size)
    right, _ = trained(transformer(), [batch(step) for step in range(STEPS)])
    assert_same(put_together([parameters for parameters, _ in found]), numbers(right))
    assert all(counts == [4, 4] for _, counts in found), "two blocks, an attention and an MLP in each"


def uneven(comm):
    """An MLP of 20 units among 3 ranks: the outputs, and the gradients of the tokens and of this rank's part."""
    torch.manual_seed(3)
    mlp, tokens = MLP(5).double(), torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    whole = copy.deepcopy(mlp)
    split = solution("products").split_mlp(mlp, None)
    right, outputs = whole(tokens), split(tokens)
    (of_right,) = torch.autograd.grad(right.pow(2).sum(), tokens, retain_graph=True)
    (of_outputs,) = torch.autograd.grad(outputs.pow(2).sum(), tokens)
    return len(split.part.up.weight), torch.allclose(outputs, right), torch.allclose(of_outputs, of_right)


def test_units_that_ranks_can_not_share_evenly_are_computed_all_the_same():
    assert on_ranks(uneven, 3) == [(7, True, True), (7, True, True), (6, True, True)]


def by_a_plan(comm):
    model, counts = trained(solution("products_dtensor").split(transformer()), [batch(step) for step in range(STEPS)])
    with torch.no_grad():
        return model(batch(9)[0]).numpy(), counts


@pytest.mark.thorough
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_plan_of_pytorch_trains_as_the_whole_network_too(size):
    right, _ = trained(transformer(), [batch(step) for step in range(STEPS)])
    for outputs, counts in on_ranks(by_a_plan, size):
        numpy.testing.assert_allclose(outputs, right(batch(9)[0]).detach().numpy(), atol=TOLERANCE)
        assert counts == [4, 4]


def in_sequences(comm):
    """What three networks have trained and used: the whole one, and those split by hand and by PyTorch's plan."""
    by_hand, plan = solution("products_sequence").split_sequence, solution("products_dtensor").split_sequence
    return [products.trained(model) for model in (transformer(), by_hand(transformer()), plan(transformer()))]


@pytest.mark.parametrize("size", [1, 2, pytest.param(4, marks=pytest.mark.thorough)])
def test_split_sequences_train_as_the_whole_network_with_the_bytes_of_all_reduces_and_less_memory(size):
    for whole, by_hand, plan in on_ranks(in_sequences, size):
        tokens = products.IMAGES * 16 * 24 * 4  # bytes of all tokens, in KB below
        all_reduces, ends = 8 * 2 * (size - 1) / size * tokens, 2 * (size - 1) / size * tokens
        for split in (by_hand, plan):
            losses = [split[f"loss of step {step + 1}"] for step in range(STEPS)]
            assert losses == pytest.approx([whole[f"loss of step {step + 1}"] for step in range(STEPS)], abs=TOLERANCE)
            # the gradients of norms and biases are few bytes
            assert 0 <= split["KB sent by a ring"] - (all_reduces + ends) / 1000 < 6
            if size > 1:
                assert [
                    split[f"{kind} in {way}"]
                    for kind in ("all-gathers", "reduce-scatters")
                    for way in ("forward", "backward")
                ] == [5, 5, 4, 4]
                assert split["all-reduces in forward"] == 0
            # of the 16 parts that a block holds in one process, 2 are gathered and whole on each rank
            saved = 2 * 14 * (1 - 1 / size) * tokens / 1000
            assert whole["KB of activations"] - split["KB of activations"] == pytest.approx(saved, rel=0.06)


def test_tokens_that_ranks_can_not_share_are_refused():
    with pytest.raises(TrackError, match="the 16 tokens of an image cannot be divided among 3 ranks: split them among"):
        sequences.check_tokens(16, 3)


def on_a_mesh(comm, inside):
    """This rank's place in the mesh, and its parameters."""
    of_ranks, split = solution("mesh"), solution("products").split
    mesh = of_ranks.make_mesh("cpu", 2, 2, inside)
    model = split(transformer(), mesh.get_group("tensor"))
    replica = of_ranks.make_replica(model, mesh)
    sampler = of_ranks.make_sampler(range(12), mesh, seed=1)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for epoch in range(STEPS):
        sampler.set_epoch(epoch)
        images, labels = batch(epoch, 12)
        mine = list(sampler)
        optimizer.zero_grad()
        F.cross_entropy(replica(images[mine]), labels[mine]).backward()
        optimizer.step()
    dist.barrier()
    return mesh.get_local_rank("data"), mesh.get_local_rank("tensor"), numbers(model)


@pytest.mark.thorough
@pytest.mark.parametrize("inside", ["tensor", "data"])
def test_a_mesh_trains_as_one_process_with_all_images(inside):
    found = on_ranks(on_a_mesh, 4, inside)
    right, _ = trained(transformer(), [batch(step, 12) for step in range(STEPS)])
    for images_of in range(2):
        parts = {part_of: parameters for place, part_of, parameters in found if place == images_of}
        assert_same(put_together([parts[0], parts[1]]), numbers(right))
    node_1 = {(place, part_of) for place, part_of, _ in found[:2]}
    assert node_1 == ({(0, 0), (0, 1)} if inside == "tensor" else {(0, 0), (1, 0)}), "ranks 0 and 1 are on one node"


def test_heads_that_can_not_be_divided_are_refused():
    with pytest.raises(
        TrackError,
        match=r"the 6 heads of an attention cannot be divided among 4 ranks: split them among 1, 2, 3, 6 ranks",
    ):
        products.check_heads(6, 4)


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        (["node1", "node1", "node2"], "do not form a mesh (2 on node1, 1 on node2)"),
        (["node1", "node2", "node1", "node2"], "the ranks of a node must be consecutive"),
    ],
)
def test_ranks_that_are_no_mesh_are_refused(nodes, problem):
    comm = SimpleNamespace(allgather=lambda mine: nodes, size=len(nodes))
    with pytest.raises(TrackError, match=re.escape(problem)):
        products.ranks_of_a_node(comm)
    assert products.ranks_of_a_node(SimpleNamespace(allgather=lambda mine: sorted(nodes)[:2], size=2)) == 2


def test_a_step_of_a_mesh_is_measured_without_the_first_epoch():
    log = [
        {"epoch": 1, "elapsed_time": 100.0, "bytes": 5e9},
        {"epoch": 2, "elapsed_time": 103.0, "bytes": 5e9 + 60},
        {"epoch": 3, "elapsed_time": 106.0, "bytes": 5e9 + 120},
    ]
    run = SimpleNamespace(log=log, images=75, epochs=3)  # 25 images in an epoch: 3 steps of 10, the last one of 5
    assert (runs.of_a_step(run, batch=10), runs.of_a_step(run, "bytes", batch=10)) == (1.0, 20.0)
    assert runs.of_a_step(SimpleNamespace(log=log[:1], images=25, epochs=1), batch=10) == 100 / 3


def test_linear_copies_what_it_gets():
    whole = nn.Linear(3, 2)
    part = products.linear(whole.weight[:1], None)
    part.weight.data.zero_()
    assert part.bias is None and whole.weight.abs().sum() > 0
