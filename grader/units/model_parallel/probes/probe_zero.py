"""Probes of zero.py: each gap runs separately, and the probe supplies the gradients and the optimizer steps."""

import torch

from grader.probes.count_collectives import Collectives
from grader.probes.exact import numbers
from grader.probes.gap_code import GapCode, what_is
from grader.probes.pytorch_scripts import flat, join, network, seed_of
from grader.probes.script import Script
from grader.sandbox.rank import StudentMistake
from handson.words import a_kind


class Descent(torch.optim.Optimizer):
    """Plain gradient descent. (The first step of PyTorch's own optimizers imports many modules.)"""

    @torch.no_grad()
    def step(self):
        for parameter in (one for group in self.param_groups for one in group["params"] if one.grad is not None):
            parameter -= parameter.grad


def shard(rank, ranks, source, case):
    """Return the numbers of `shard`; `apart`, the names that do not share the network's memory; the count of numbers in
    all optimizers; `made`, whether make_optimizer returned this optimizer; and `trained`, whether its step changes
    `shard`."""
    join(rank, ranks)
    model, optimizers = network(seed_of(case)), []

    def make_optimizer(parameters):
        optimizers.append(Descent(parameters, {}))
        return optimizers[-1]

    made = Script(source, {}, function="divide").run(lambda names: None, model, make_optimizer)
    shard, optimizer = made.shard, made.optimizer
    if not isinstance(shard, torch.Tensor):
        raise StudentMistake(f"`shard` is {what_is(source, 'shard', shard)}, not a tensor")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise StudentMistake(f"`optimizer` is {a_kind(optimizer)}, not an optimizer: set it to make_optimizer([shard])")
    held = sum(
        parameter.numel()
        for one in {optimizer, *optimizers}
        for group in one.param_groups
        for parameter in group["params"]
    )
    first, begin = next(model.parameters()), shard.detach().clone()
    apart = [
        name
        for name, of_model in {"values": first, "gradients": first.grad, "shard": first}.items()
        if not _share(getattr(made, name), of_model)
    ]
    shard.grad = torch.ones_like(begin)
    optimizer.step()
    return {
        "shard": flat([begin]),
        "apart": apart,
        "optimizer": held,
        "made": any(optimizer is one for one in optimizers),
        "trained": not torch.equal(shard, begin),
    }


def _share(one, other):
    """Return whether two tensors share their memory."""
    return isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def rows(case, rank, step=0):
    """Return a rank's numbers (ranks, case["length"]): their sums are exact, and half precision cannot represent
    them."""
    ranks = case["ranks"]
    return torch.from_numpy(numbers(case["seed"] + 977 * step, rank, ranks * case["length"])).view(ranks, -1)


def reduce_scatter(rank, ranks, source, case):
    """Return the shard's mean gradients in each step, and the collectives of each step."""
    join(rank, ranks)
    gap, found, sent, collectives = GapCode(source), [], [], Collectives()
    for number in range(case["steps"]):
        gradients = rows(case, rank, number + 1)
        with collectives.noted(all_ended=True):
            mean = gap.run(gradients=gradients).mean
        sent.append(collectives.hand_over())
        if not isinstance(mean, torch.Tensor) or mean.shape != gradients[0].shape:
            is_now = (
                f"the shape {tuple(mean.shape)}" if isinstance(mean, torch.Tensor) else f"type {type(mean).__name__}"
            )
            raise StudentMistake(
                f"`mean` has {is_now}, but must be a tensor with the shape of a row, {tuple(gradients.shape[1:])}"
            )
        found.append(flat([mean]))
    return {"gradients": found, "sent": sent}


def all_gather(rank, ranks, source, case):
    """Return all parameters after each step, the collectives of each step, and whether `values` has become a new
    tensor, of which the parameters are not views. The optimizer adds numbers that depend on rank and step."""
    join(rank, ranks)
    gap, found, sent, moved, collectives = GapCode(source), [], [], [], Collectives()
    values = rows(case, 0).clone()
    for number in range(case["steps"]):
        values[rank] += rows(case, rank, number + 1)[rank]
        with collectives.noted(all_ended=True):
            names = gap.run(values=values, shard=values[rank])
        sent.append(collectives.hand_over())
        found.append(flat([values]))
        moved.append(not _share(names.get("values"), values))
    return {"values": found, "sent": sent, "moved": any(moved)}
