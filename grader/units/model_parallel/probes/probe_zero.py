"""Probes of zero.py: each gap in its place, with gradients and steps of the optimizer that the probe makes up."""

from types import SimpleNamespace

import torch

from grader.probes.count_collectives import Collectives
from grader.probes.exact import numbers
from grader.probes.pytorch_scripts import flat, join, network, seed_of
from grader.probes.script import Script
from grader.sandbox.rank import StudentMistake


class Descent(torch.optim.Optimizer):
    """Gradient descent; the first step of one of PyTorch's own optimizers imports more than the rest of a check."""

    @torch.no_grad()
    def step(self):
        for parameter in (one for group in self.param_groups for one in group["params"] if one.grad is not None):
            parameter -= parameter.grad


def shard(rank, ranks, source, case):
    """The numbers of `shard`; `apart`: what does not lie in the memory of the network; how many numbers all optimizers
    have that are made, whether make_optimizer has `made` the one that is returned, and whether a step of it changes
    `shard`."""
    join(rank, ranks)
    model, optimizers = network(seed_of(case)), []

    def make_optimizer(parameters):
        optimizers.append(Descent(parameters, {}))
        return optimizers[-1]

    made = Script(source, {}, function="divide").run(lambda names: None, model, make_optimizer)
    shard, optimizer = made.shard, made.optimizer
    if not isinstance(shard, torch.Tensor):
        raise StudentMistake(f"`shard` is a {type(shard).__name__}, not a tensor")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise StudentMistake(
            f"`optimizer` is a {type(optimizer).__name__}; make_optimizer(list of parameters) gives one"
        )
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
    """Whether two tensors lie in the same memory."""
    return isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def rows(case, rank, step=0):
    """A rank's numbers (ranks, case["length"]), whose sums are exact, and which half precision does not hold."""
    ranks = case["ranks"]
    return torch.from_numpy(numbers(case["seed"] + 977 * step, rank, ranks * case["length"])).view(ranks, -1)


class _Step:
    """What surrounds a gap of the function `step`: the network's values and gradients, which are views, and an
    optimizer of the shard, which stay what they are whatever the gap does to `shards`. step: that of the optimizer, a
    function of the shard."""

    def __init__(self, case, rank, step):
        values = rows(case, 0).clone()
        gradients, self.shard = torch.zeros_like(values), torch.nn.Parameter(values[rank])
        self.values, self.gradients = values.view(-1), gradients.view(-1)
        self.shards = SimpleNamespace(
            values=values,
            gradients=gradients,
            shard=self.shard,
            optimizer=SimpleNamespace(step=lambda: step(self.shard)),
        )


def reduce_scatter(rank, ranks, source, case):
    """The gradient that the optimizer finds in each step, and what was sent for it. Backward adds to the gradients."""
    join(rank, ranks)
    found, sent, collectives = [], [], Collectives()
    script = Script(source, {"all_gather": ("", lambda: None)}, function="step")

    def see(shard):
        if shard.grad is None and of_step.shards.shard is not shard:
            raise StudentMistake(
                "shards.shard is another tensor after your code, and the optimizer trains the one before: give that one"
                " its gradient"
            )
        if shard.grad is None:
            raise StudentMistake("shard.grad is None when the optimizer makes its step")
        if shard.grad.shape != shard.shape:
            raise StudentMistake(
                f"shard.grad has the shape {tuple(shard.grad.shape)}; that of the shard is {tuple(shard.shape)}"
            )
        found.append(flat([shard.grad]))

    of_step = _Step(case, rank, see)
    for number in range(case["steps"]):
        of_step.gradients += rows(case, rank, number + 1).flatten()
        with collectives.noted(all_ended=True):
            script.run(lambda names: None, of_step.shards)
        sent.append(collectives.hand_over())
    return {"gradients": found, "sent": sent}


def all_gather(rank, ranks, source, case):
    """All parameters of the network after each step, what was sent for them, and whether `values` has become another
    tensor than the one that they are views of. The optimizer adds to the shard numbers of the rank and the step."""
    join(rank, ranks)
    found, sent, moved, collectives = [], [], [], Collectives()
    script = Script(source, {"reduce_scatter": ("", lambda: None)}, function="step")
    of_step = _Step(case, rank, lambda shard: shard.data.add_(rows(case, rank, len(found) + 1)[rank]))

    def see(names):
        moved.append(not all(_share(one, of_step.values) for one in (names.get("values"), of_step.shards.values)))

    for _ in range(case["steps"]):
        with collectives.noted(all_ended=True):
            script.run(see, of_step.shards)
        sent.append(collectives.hand_over())
        found.append(flat([of_step.values]))
    return {"values": found, "sent": sent, "moved": any(moved)}
