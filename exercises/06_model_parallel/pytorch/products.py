"""Tensor parallelism for a transformer: torchrun --standalone --nproc-per-node 2 products.py

Each rank holds some columns or rows of every matrix, and some heads of each attention. A split part begins and ends
with an operator that does nothing in one direction and runs an all-reduce in the other direction ("f" and "g" in
Shoeybi et al., "Megatron-LM", 2019).
"""

import torch
import torch.distributed as dist
from torch import nn

from handson.pytorch import products


class Enter(torch.autograd.Function):
    """f, where a split part begins: all ranks have the same x, and each rank uses it in its own part."""

    @staticmethod
    def forward(context, x, group):
        context.group = group
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        # PUT YOUR CODE: Set `of_x` to the gradient of x. On each rank, `gradient` comes only from the rank's
        # own part: add the gradients of all ranks of context.group with one all-reduce. Do not change
        # `gradient` itself
        raise NotImplementedError("PUT YOUR CODE: enter_backward")
        return of_x, None


class Leave(torch.autograd.Function):
    """g, where a split part ends: each rank has a term of a sum, and all ranks continue with the sum."""

    @staticmethod
    def forward(context, term, group):
        # PUT YOUR CODE: Set `total` to the sum of the terms of all ranks of `group`, with one all-reduce. Do
        # not change `term` itself
        raise NotImplementedError("PUT YOUR CODE: leave_forward")
        return total

    @staticmethod
    def backward(context, gradient):
        # PUT YOUR CODE: Set `of_term` to the gradient of this rank's term. `gradient` is the gradient of the
        # sum, and equal on all ranks
        raise NotImplementedError("PUT YOUR CODE: leave_backward")
        return of_term, None


def columns(layer, rank, size):
    """Return an nn.Linear that computes this rank's part of the outputs of `layer`. If the outputs cannot be divided
    evenly, the first ranks have one more."""
    # PUT YOUR CODE: Set `weight` and `bias` to this rank's part of layer.weight (outputs, inputs) and of
    # layer.bias (outputs). tensor.tensor_split(size, dim) returns the parts of all ranks
    raise NotImplementedError("PUT YOUR CODE: columns")
    return products.linear(weight, bias)


def rows(layer, rank, size):
    """Return an nn.Linear without a bias that computes a term of the outputs of `layer` from this rank's part of the
    inputs. If the inputs cannot be divided evenly, the first ranks have one more."""
    # PUT YOUR CODE: Set `weight` to the part of layer.weight (outputs, inputs) for this rank's inputs
    raise NotImplementedError("PUT YOUR CODE: rows")
    return products.linear(weight, None)


class Split(nn.Module):
    """An attention or MLP that is split among the ranks. On every rank, it returns the outputs of the whole layer."""

    def __init__(self, part, bias, group):
        super().__init__()
        self.part, self.bias, self.group = part, bias, group  # the last layer's bias is equal on all ranks

    def forward(self, tokens):
        # PUT YOUR CODE: Set `outputs` to the outputs of the whole attention or MLP for `tokens`.
        # self.part(...) returns a term without self.bias. Use Enter.apply(..., self.group) before it, and
        # Leave.apply(..., self.group) after it
        raise NotImplementedError("PUT YOUR CODE: split_forward")
        return outputs


def split_mlp(mlp, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    mlp.up = columns(mlp.up, rank, size)
    bias, mlp.down = mlp.down.bias, rows(mlp.down, rank, size)
    return Split(mlp, bias, group)


def split_attention(attention, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    products.check_heads(attention.heads, size)
    # PUT YOUR CODE: Replace the layers of `attention` by this rank's parts, as split_mlp does. Set
    # attention.heads to this rank's number of heads; the first heads belong to rank 0. Set `bias` to the
    # bias of the whole attention.out
    raise NotImplementedError("PUT YOUR CODE: split_attention")
    return Split(attention, bias, group)


def split(model, group=None):
    """Split the blocks of a Transformer in place among the ranks of `group` (None: all ranks). Before the call, all
    ranks have the same parameters."""
    for block in model.blocks:  # the patches and the head are whole on all ranks
        block.attention = split_attention(block.attention, group)
        block.mlp = split_mlp(block.mlp, group)
    return model


if __name__ == "__main__":
    products.compare(split)
