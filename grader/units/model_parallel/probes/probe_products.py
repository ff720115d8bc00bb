"""Probes of products.py: operators, layers, attention and the whole block run on real ranks, in groups."""

import copy
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn

from grader.probes.count_collectives import Collectives
from grader.probes.gap_code import GapCode, what_is
from grader.probes.pytorch_scripts import join
from grader.sandbox.rank import StudentMistake
from handson.pytorch.transformer import MLP, Attention
from handson.words import a_kind

SHAPE = 3, 4  # the shape of the tensors that an operator receives
TOKENS = 2, 3  # images, and tokens of each


def numbers(case, rank):
    """Return the tensor that a rank passes to an operator. Its numbers have more digits than half precision. At some
    places each rank has the largest number, so that no rank's tensor is the maximum of all."""
    places = SHAPE[0] * SHAPE[1]
    drawn = torch.rand(
        case["ranks"], places, generator=torch.Generator().manual_seed(case["seed"]), dtype=torch.float64
    )
    which = (torch.arange(places) + rank) % case["ranks"]
    return (198 * drawn - 99).sort(0).values.gather(0, which[None]).view(SHAPE)


def group_of(rank, groups):
    """Return the process group of this rank, and its ranks. groups: the ranks of each group, or None if all ranks
    are one group, which is then None."""
    if groups is None:
        return None
    made = [dist.new_group(ranks) for ranks in groups]  # all ranks make all groups
    return next(group for group, ranks in zip(made, groups) if rank in ranks)


def operator(rank, ranks, source, case):
    """Return the result of the operator on this rank, whether its argument was changed, and the messages that it
    sent, as [name, bytes]. case["gives"], ["gets"]: the names of the gap's argument and result; "inside": whether
    the group is an attribute of `context`."""
    join(rank, ranks)
    group, mine, collectives = group_of(rank, case.get("groups")), numbers(case, rank), Collectives()
    given = {"context": SimpleNamespace(group=group), "group": group, case["gives"]: mine}
    with collectives.noted(all_ended=True):
        found = getattr(GapCode(source).run(**given), case["gets"])
    if not isinstance(found, torch.Tensor):
        raise StudentMistake(f"`{case['gets']}` is {what_is(source, case['gets'], found)}, not a tensor")
    changed = not torch.equal(mine, numbers(case, rank))
    return {"found": found.detach().double().numpy().copy(), "changed": changed, "sent": collectives.hand_over()}


def layer(case):
    """Return the nn.Linear of the case, which is the same on all ranks."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(case["seed"])
        return nn.Linear(case["inputs"], case["outputs"], dtype=torch.float64)


def part(rank, ranks, source, case):
    """Return the weight of this rank, and with case["bias"] also the bias."""
    join(rank, ranks)
    group = group_of(rank, case.get("groups"))
    names = GapCode(source).run(layer=layer(case), rank=dist.get_rank(group), size=dist.get_world_size(group))
    values = {name: getattr(names, name) for name in ("weight", "bias")[: 1 + case["bias"]]}
    for name, value in values.items():
        if not isinstance(value, torch.Tensor):
            raise StudentMistake(f"`{name}` is {what_is(source, name, value)}, not a tensor")
    return {name: value.detach().numpy().copy() for name, value in values.items()}


def network(case, kind, *arguments):
    """Return (a part of a block in double precision, its tokens, a gradient of its outputs); kind: MLP or Attention."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(case["seed"])
        made = kind(*arguments).double()
        tokens, upstream = torch.randn(2, *TOKENS, case["width"], dtype=torch.float64)
    return made, tokens.clone().requires_grad_(), upstream


class Noted:
    """Replace Enter ("backward") or Leave ("forward") with the right operator, an all-reduce in this direction, and
    count its uses."""

    def __init__(self, name, direction, right):
        outer = self
        self.calls, self.name = 0, name

        def through(numbers, where):
            total = numbers.clone()
            if where == direction:
                dist.all_reduce(total, group=right)
            return total

        class Operator(torch.autograd.Function):
            @staticmethod
            def forward(context, x, group):
                if group is not right:
                    raise StudentMistake(
                        f"{name}.apply receives the group {group!r} instead of self.group: ranks outside of the group"
                        " may have other images, and their terms do not belong to the sum"
                    )
                outer.calls += 1
                return through(x, "forward")

            @staticmethod
            def backward(context, gradient):
                return through(gradient, "backward"), None

        self.apply = Operator.apply

    def __call__(self, *arguments):
        raise StudentMistake(
            f"`{self.name}` is called like a function, but it is a torch.autograd.Function: call {self.name}.apply(...)"
        )


def part_of_mlp(case, rank):
    """Return (this rank's part of an MLP, whose last layer has no bias, that bias, tokens, a gradient of the
    outputs)."""
    mlp, tokens, upstream = network(case, MLP, case["width"])
    bias, mlp.down.bias = mlp.down.bias, None
    for layer, name, dimension in ((mlp.up, "weight", 0), (mlp.up, "bias", 0), (mlp.down, "weight", 1)):
        mine = getattr(layer, name).detach().tensor_split(case["ranks"], dimension)[rank]
        setattr(layer, name, nn.Parameter(mine.clone()))
    return mlp, bias, tokens, upstream


def whole(rank, ranks, source, case):
    """Return `outputs`, the gradients of the tokens, of the bias and of the part's own parameters, and how often each
    operator was applied."""
    join(rank, ranks)
    group = dist.new_group(list(range(ranks)))
    mlp, bias, tokens, upstream = part_of_mlp(case, rank)
    enter, leave = Noted("Enter", "backward", group), Noted("Leave", "forward", group)
    block = SimpleNamespace(part=mlp, bias=bias, group=group)
    outputs = GapCode(source).run(self=block, tokens=tokens, Enter=enter, Leave=leave).outputs
    if not isinstance(outputs, torch.Tensor) or outputs.shape != tokens.shape:
        raise StudentMistake(f"`outputs` should have the shape of `tokens`, {tuple(tokens.shape)}")
    outputs.backward(upstream)
    of_tokens, of_bias, *of_part = (
        torch.zeros_like(one) if one.grad is None else one.grad for one in (tokens, bias, *mlp.parameters())
    )
    found = {
        "outputs": outputs.detach(),
        "of_tokens": of_tokens,
        "of_bias": of_bias,
        "of_part": torch.cat([one.flatten() for one in of_part]),
    }
    return {name: one.numpy().copy() for name, one in found.items()} | {"entered": enter.calls, "left": leave.calls}


class Columns(nn.Module):
    """Replace the result of `columns`: compute all outputs, and return those of this rank."""

    def __init__(self, layer, rank, size):
        super().__init__()
        self.layer, self.rank, self.size = copy.deepcopy(layer), rank, size
        self.weight, self.bias = self.layer.weight, self.layer.bias

    def forward(self, tokens):
        return self.layer(tokens).tensor_split(self.size, -1)[self.rank]


class Rows(nn.Module):
    """Replace the result of `rows`: put this rank's inputs into their place, and set all others to 0."""

    def __init__(self, layer, rank, size):
        super().__init__()
        self.layer, self.rank, self.size = copy.deepcopy(layer), rank, size
        self.weight, self.layer.bias, self.bias = self.layer.weight, None, None

    def forward(self, part):
        places = torch.arange(self.layer.in_features).tensor_split(self.size)[self.rank]
        inputs = part.new_zeros(*part.shape[:-1], self.layer.in_features)
        if part.shape[-1] != len(places):
            raise StudentMistake(
                f"`attention.out` receives {part.shape[-1]} numbers per token on one of {self.size} ranks, but its rows"
                f" are for {len(places)}: split query, key and value, too"
            )
        return self.layer(inputs.index_copy(-1, places, part))


def split_in_their_dimensions(attention):
    """Raise StudentMistake if `rows` split a layer that `columns` should split, or the other way round."""
    wanted = {name: (Columns, "a rank needs all inputs for its heads") for name in ("query", "key", "value")}
    wanted["out"] = Rows, "a rank has only the inputs from its own heads"
    for name, (kind, why) in wanted.items():
        found = type(getattr(attention, name))
        if found in (Columns, Rows) and found is not kind:
            raise StudentMistake(
                f"`attention.{name}` is split by `{found.__name__.lower()}`, but {why}: use `{kind.__name__.lower()}`"
            )


def attention(rank, ranks, source, case):
    """Return the attention's result on this rank (a partial sum), `bias`, whether an optimizer would train `bias`,
    and "widths": the numbers of query, key and value for each token."""
    join(rank, ranks)
    made, tokens, _ = network(case, Attention, case["width"], case["heads"])
    names = GapCode(source).run(
        attention=made, group=dist.new_group(list(range(ranks))), rank=rank, size=ranks, columns=Columns, rows=Rows
    )
    if not isinstance(names.bias, torch.Tensor):
        raise StudentMistake(
            "`bias` is None, because `rows` returns a layer without bias: keep the bias of the whole `attention.out`"
            " before you replace the layer"
        )
    if not isinstance(names.attention, Attention):
        raise StudentMistake(
            f"`attention` is {a_kind(names.attention)} after your code, but it should stay an Attention whose layers"
            " you replace"
        )
    split_in_their_dimensions(names.attention)
    if not isinstance(names.attention.heads, int):
        raise StudentMistake(f"`attention.heads` is {names.attention.heads!r}, not an integer")
    with torch.no_grad():
        trained = isinstance(names.bias, nn.Parameter) and names.bias.requires_grad
        term = names.attention(tokens).numpy().copy()
        widths = [getattr(names.attention, name)(tokens).shape[-1] for name in ("query", "key", "value")]
        return {"term": term, "bias": names.bias.detach().numpy().copy(), "trained": trained, "widths": widths}
