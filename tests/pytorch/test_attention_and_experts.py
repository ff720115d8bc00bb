"""Attention over a sequence that is cut among 1 to 4 ranks is attention in one process, and experts on several ranks are
all experts on one (unit attention_and_experts)."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from loading import load
from ranks import on_ranks, run_ranks

from handson.errors import TrackError
from handson.pytorch.attentions import check_division

SCRIPTS = Path(__file__).resolve().parents[2] / "solutions/09_attention_and_experts/pytorch"
TOKENS, WIDTH, EXPERTS = 48, 8, 12


def solution(script):
    return load(SCRIPTS / f"{script}.py")


def errors_of_each_way(comm):
    """How far this rank's result is from that of one process: {(way, causal): the largest difference}."""
    script, found = solution("attention"), {}
    whole = torch.randn(3, 12, TOKENS, WIDTH, generator=torch.Generator().manual_seed(2))
    ways = {"ring": (script.ring_attention, False), "zigzag": (script.ring_attention, True)}
    ways["heads"] = script.head_attention, False
    for name, (attention, zigzag) in ways.items():
        places = [script.places_of(TOKENS, rank, comm.size, zigzag) for rank in range(comm.size)]
        assert sorted(torch.cat(places).tolist()) == list(range(TOKENS))
        for causal in (False, True):
            mine = whole[:, :, places[comm.rank]]
            right = F.scaled_dot_product_attention(*whole, is_causal=causal)[:, places[comm.rank]]
            found[name, causal] = (attention(*mine, places, causal) - right).abs().max().item()
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_attention_cut_among_ranks_is_attention_in_one_process(size):
    for errors in on_ranks(errors_of_each_way, size):
        assert len(errors) == 6 and max(errors.values()) < 1e-5, errors


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ((1001, 4, 4), "a sequence of 1001 tokens cannot be split into 8 equal chunks, two per rank: pad it to 1008"),
        ((96, 4, 3), "4 heads cannot be split among 3 ranks"),
    ],
)
def test_a_sequence_or_heads_that_can_not_be_divided_are_one_sentence(sizes, sentence):
    with pytest.raises(TrackError, match=sentence):
        check_division(*sizes)


def layer_and_tokens(capacity_factor, ranks, lonely):
    """(the layer, the tokens of all ranks). lonely: an expert that no token chooses, or None."""
    torch.manual_seed(4)
    layer = solution("experts").Experts(WIDTH, EXPERTS, capacity_factor)
    tokens = torch.randn(ranks, 5, WIDTH, generator=torch.Generator().manual_seed(6))
    if lonely is not None:
        with torch.no_grad():
            layer.router.weight[lonely] = 0.0
            layer.router.weight[0], tokens[..., 0] = 0.0, 9.0
            layer.router.weight[0, 0], layer.router.weight[1:, 0] = 1.0, 0.5
            layer.router.weight[lonely, 0] = -9.0
    return layer, tokens


def in_one_process(layer, tokens):
    """What all experts make of the tokens, without a message."""
    flat = tokens.flatten(0, -2)
    weight, expert = layer.router(flat).softmax(dim=-1).max(dim=-1)
    layer.counts, outputs = expert.bincount(minlength=EXPERTS), torch.zeros_like(flat)
    for number, one in enumerate(layer.mine):
        which = (expert == number).nonzero().squeeze(1)
        outputs = outputs.index_copy(0, which, weight[which, None] * one(flat[which]))
    return outputs.view_as(tokens)


def of_my_tokens(comm, ranks, lonely):
    """What the layer makes of this rank's tokens (of all ranks' in one process, if there is one rank), and the
    gradients: of the tokens, and of this rank's experts."""
    layer, tokens = layer_and_tokens(float(EXPERTS), ranks, lonely)
    mine = (tokens if comm.size == 1 else tokens[comm.rank]).clone().requires_grad_()
    outputs = in_one_process(layer, mine) if comm.size == 1 else layer(mine)
    outputs.square().sum().backward()
    of_experts = [
        [torch.zeros(0) if one.grad is None else one.grad for one in expert.parameters()] for expert in layer.mine
    ]
    counts = layer.counts.clone()
    dist.all_reduce(counts)
    return outputs.detach(), mine.grad, of_experts, counts.tolist()


@pytest.mark.parametrize("lonely", [None, 3])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_experts_on_several_ranks_are_all_experts_on_one_bit_by_bit(size, lonely):
    found = on_ranks(of_my_tokens, size, size, lonely)
    [(outputs, of_tokens, of_experts, counts)] = on_ranks(of_my_tokens, 1, size, lonely)
    assert torch.equal(torch.stack([one[0] for one in found]), outputs)
    for one, right in zip(found, of_tokens):
        assert torch.allclose(one[1], right, atol=1e-6), "the router adds up in another order"
    gradients = [gradients for one in found for gradients in one[2]]
    assert all(torch.equal(a, b) for one, other in zip(gradients, of_experts) for a, b in zip(one, other))
    assert all(one[3] == counts for one in found) and len(gradients) == EXPERTS
    assert lonely is None or counts[lonely] == 0


def test_dropped_tokens_get_nothing():
    script = solution("experts")
    expert = torch.tensor([1, 0, 1, 1, 0])
    assert script.within_capacity(expert, 3, 2).tolist() == [True, True, True, False, True]
    assert on_ranks(no_room, 1) == [True]


def no_room(comm):
    """Whether a capacity of 0 is one sentence."""
    layer, tokens = layer_and_tokens(0.1, 1, None)
    try:
        layer(tokens)
    except TrackError as error:
        return "capacity of 0" in str(error)


def test_the_balancing_loss_is_1_if_all_is_even_and_the_number_of_experts_if_one_gets_all():
    loss = solution("experts").balancing_loss
    assert loss(torch.full((4, 4), 0.25), torch.arange(4)).item() == 1
    assert loss(F.one_hot(torch.zeros(6, dtype=int), 4).float(), torch.zeros(6, dtype=int)).item() == 4


def uneven(comm):
    torch.manual_seed(0)
    solution("experts").Experts(WIDTH, 5, 1.0)


def test_experts_that_can_not_be_divided_are_one_sentence():
    ended = run_ranks(uneven, 2)
    assert all(rank.status for rank in ended)
    assert "5 experts cannot be split among 2 ranks" in ended[0].errors
