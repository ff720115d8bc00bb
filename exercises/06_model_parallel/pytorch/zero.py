"""Stage 1 of ZeRO from scratch: every rank has all parameters, but keeps the optimizer's state only for its *shard*,
and updates only this shard.

Rajbhandari, Rasley, Ruwase and He, "ZeRO: memory optimizations toward training trillion parameter models", SC 2020.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Shards:
    """Parameters and gradients of a network in two tensors of shape (ranks, numbers per shard). Row r is the shard of
    rank r. The last row is padded with zeros."""

    values: torch.Tensor  # the parameters are views of this tensor
    gradients: torch.Tensor  # the gradients are views of this tensor
    shard: nn.Parameter  # this rank's row of `values`
    optimizer: torch.optim.Optimizer  # updates only `shard`


def in_rows(parameters, rows):
    """Return (values, gradients), two tensors of shape (rows, numbers). The parameters become views of `values`, and
    their gradients become views of `gradients`."""
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
    """Return the Shards of a model that has equal parameters on all ranks. make_optimizer: takes a list of parameters,
    and returns an optimizer."""
    values, gradients = in_rows(list(model.parameters()), dist.get_world_size())
    rank = dist.get_rank()
    # PUT YOUR CODE: Set `shard` to an nn.Parameter that shares its memory with this rank's row of
    # `values`. Set `optimizer` to the result of make_optimizer for only this shard.
    raise NotImplementedError("PUT YOUR CODE: shard")
    return Shards(values, gradients, shard, optimizer)


def mean_of_shard(gradients):
    """Return the gradient of this rank's shard: the mean over all ranks of the shard's row in `gradients`, which has
    the shape (ranks, numbers per shard)."""
    # PUT YOUR CODE: Set `mean` to a tensor of shape (numbers per shard), with one reduce-scatter:
    # dist.reduce_scatter(result, list of rows) sums row r of all ranks for rank r. You may overwrite
    # `gradients`, because they are not needed afterwards.
    raise NotImplementedError("PUT YOUR CODE: reduce_scatter")
    return mean


def gather(values, shard):
    """Copy the shard of each rank r into row r of `values`, in place and on all ranks. shard: this rank's shard;
    `values` has the shape (ranks, numbers per shard)."""
    # PUT YOUR CODE: Run one all-gather: dist.all_gather(list of rows, tensor).
    raise NotImplementedError("PUT YOUR CODE: all_gather")


def step(shards):
    """Update all parameters on all ranks, like one optimizer that has the mean gradients. All ranks call this function
    after backward."""
    shards.shard.grad = mean_of_shard(shards.gradients)
    shards.optimizer.step()
    gather(shards.values, shards.shard.detach())
    shards.gradients.zero_()
    shards.shard.grad = None  # frees its memory for the next forward
