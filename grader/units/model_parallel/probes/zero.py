"""Probes of zero.py: each gap in its place, with gradients and steps of the optimizer that the probe makes up."""

from types import SimpleNamespace

import torch

from grader.box.rank import Wrong
from grader.probes.exact import numbers
from grader.probes.pytorch import flat, join, network, seed_of
from grader.probes.script import Script
from grader.probes.wire import Wire


def shard(rank, ranks, source, case):
    """The numbers of `shard`, whether it lies in the memory of `values`, and how many numbers the optimizer has."""
    join(rank, ranks)
    made = Script(source, {}, function="divide").run(lambda names: None, network(seed_of(case)), torch.optim.Adam)
    shard, optimizer = made.shard, made.optimizer
    if not isinstance(shard, torch.Tensor):
        raise Wrong(f"`shard` is a {type(shard).__name__}, not a tensor")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Wrong(f"`optimizer` is a {type(optimizer).__name__}; make_optimizer(list of parameters) gives one")
    held = sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])
    same = shard.untyped_storage().data_ptr() == made.values.untyped_storage().data_ptr()
    return {"shard": flat([shard]), "same": same, "optimizer": held, "leaf": shard.is_leaf and shard.requires_grad}


def rows(case, rank, step=0):
    """A rank's whole numbers (ranks, case["length"]), whose sums are exact."""
    ranks = case["ranks"]
    return torch.from_numpy(numbers(case["seed"] + 977 * step, rank, ranks * case["length"])).view(ranks, -1)


def _shards(case, rank, step):
    """What the function `step` gets; `step`: that of the optimizer."""
    values = rows(case, 0).clone()
    shard = torch.nn.Parameter(values[rank])
    return SimpleNamespace(values=values, gradients=torch.zeros_like(values), shard=shard, optimizer=SimpleNamespace(step=step))


def reduce_scatter(rank, ranks, source, case):
    """The gradient that the optimizer finds in each step, and what was sent for it."""
    join(rank, ranks)
    found, sent, wire = [], [], Wire()
    script = Script(source, {"all_gather": ("", lambda: None)}, function="step")

    def see():
        gradient = shards.shard.grad
        if gradient is None:
            raise Wrong("shard.grad is None when the optimizer makes its step")
        if gradient.shape != shards.shard.shape:
            raise Wrong(f"shard.grad has the shape {tuple(gradient.shape)}; that of the shard is {tuple(shards.shard.shape)}")
        found.append(flat([gradient]))

    shards = _shards(case, rank, see)
    for number in range(case["steps"]):
        shards.gradients.copy_(rows(case, rank, number + 1))
        with wire.noted(all_ended=True):
            script.run(lambda names: None, shards)
        sent.append([list(one) for one in wire.collectives])
        wire.collectives.clear()
    return {"gradients": found, "sent": sent}


def all_gather(rank, ranks, source, case):
    """All parameters after each step, and what was sent for them. The optimizer adds to the shard numbers of the rank and the step."""
    join(rank, ranks)
    found, sent, wire = [], [], Wire()
    script = Script(source, {"reduce_scatter": ("", lambda: None)}, function="step")
    shards = _shards(case, rank, lambda: shards.shard.data.add_(rows(case, rank, len(found) + 1)[rank]))
    for _ in range(case["steps"]):
        with wire.noted(all_ended=True):
            script.run(lambda names: None, shards)
        sent.append([list(one) for one in wire.collectives])
        wire.collectives.clear()
        found.append(flat([shards.values]))
    return {"values": found, "sent": sent}
