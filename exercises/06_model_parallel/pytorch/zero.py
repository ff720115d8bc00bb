"""ZeRO, stage 1, from scratch: all ranks have all parameters, but each has the optimizer's state of its *shard* alone,
and updates only that.

Rajbhandari, Rasley, Ruwase and He, "ZeRO: memory optimizations toward training trillion parameter models", SC 2020.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Shards:
    """All numbers of a network in two tensors (ranks, numbers of a shard): row r is the shard of rank r, the end of the
    last one is zeros."""

    values: torch.Tensor  # the parameters are views of it
    gradients: torch.Tensor  # their gradients are views of it
    shard: nn.Parameter  # this rank's row of `values`
    optimizer: torch.optim.Optimizer  # of `shard` alone


def in_rows(parameters, rows):
    """(values, gradients): two tensors (rows, numbers); the parameters become views of the first, their gradients of
    the second."""
    count = sum(parameter.numel() for parameter in parameters)
    values, gradients = (parameters[0].new_zeros(rows, -(-count // rows)) for _ in range(2))
    begin = 0
    for parameter in parameters:
        place = slice(begin, begin + parameter.numel())
        values.view(-1)[place] = parameter.detach().flatten()
        parameter.data = values.view(-1)[place].view_as(parameter)
        parameter.grad = gradients.view(-1)[place].view_as(parameter)
        begin += parameter.numel()
    return values, gradients


def divide(model, make_optimizer):
    """The Shards of a model, which begins alike on all ranks. make_optimizer: a function of a list of parameters."""
    values, gradients = in_rows(list(model.parameters()), dist.get_world_size())
    rank = dist.get_rank()
    # PUT YOUR CODE: `shard`: an nn.Parameter of this rank's row of `values`, in the same memory;
    # `optimizer`: make_optimizer's, for this shard alone
    raise NotImplementedError("PUT YOUR CODE: shard")
    return Shards(values, gradients, shard, optimizer)


def mean_of_shard(gradients):
    """The gradient of this rank's shard: its row of `gradients` (ranks, numbers of a shard), as a mean over the
    ranks."""
    # PUT YOUR CODE: `mean`: a tensor (numbers of a shard), by one reduce-scatter:
    # dist.reduce_scatter(result, list of rows) adds up row r for rank r. `gradients` may change: they are
    # not needed any more
    raise NotImplementedError("PUT YOUR CODE: reduce_scatter")
    return mean


def gather(values, shard):
    """On all ranks, row r of `values` (ranks, numbers of a shard) becomes the shard of rank r, in place. shard: this
    rank's."""
    # PUT YOUR CODE: one all-gather: dist.all_gather(list of rows, tensor)
    raise NotImplementedError("PUT YOUR CODE: all_gather")


def step(shards):
    """After backward, on all ranks together: all parameters become what one optimizer makes of the mean gradients."""
    shards.shard.grad = mean_of_shard(shards.gradients)
    shards.optimizer.step()
    gather(shards.values, shards.shard.detach())
    shards.gradients.zero_()
    shards.shard.grad = None  # its memory is free during the next forward
