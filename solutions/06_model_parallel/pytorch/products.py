"""Split a transformer in its products: torchrun --standalone --nproc-per-node 2 products.py

Each rank holds some columns or rows of every matrix, and some heads of each attention. Where a split part begins and
where it ends, an operator does nothing in one direction and an all-reduce in the other ("f" and "g" in Shoeybi et al.,
"Megatron-LM", 2019).
"""

import torch
import torch.distributed as dist
from torch import nn

from handson.pytorch import products


class Enter(torch.autograd.Function):
    """f, where a split part begins: all ranks have the same x, and each computes something else from it."""

    @staticmethod
    def forward(context, x, group):
        context.group = group
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        ### BEGIN SOLUTION enter_backward:
        ### `of_x`: the gradient of x. Each rank has, in `gradient`, only what follows from its own
        ### part; add up those of all ranks of context.group by one all-reduce, and leave `gradient`
        ### as it is
        of_x = gradient.clone()
        dist.all_reduce(of_x, group=context.group)
        ### END SOLUTION
        return of_x, None


class Leave(torch.autograd.Function):
    """g, where a split part ends: each rank has a term of a sum, and all ranks go on with the sum."""

    @staticmethod
    def forward(context, term, group):
        ### BEGIN SOLUTION leave_forward:
        ### `total`: the sum of the `term` of all ranks of `group`, by one all-reduce; leave `term`
        ### as it is
        total = term.clone()
        dist.all_reduce(total, group=group)
        ### END SOLUTION
        return total

    @staticmethod
    def backward(context, gradient):
        ### BEGIN SOLUTION leave_backward:
        ### `of_term`: the gradient of this rank's term. `gradient` is that of the sum, and the same
        ### on all ranks
        of_term = gradient
        ### END SOLUTION
        return of_term, None


def columns(layer, rank, size):
    """An nn.Linear that computes this rank's part of the outputs of `layer`. Where they can't be divided evenly, the
    first ranks have one more."""
    ### BEGIN SOLUTION columns:
    ### `weight` and `bias`: this rank's part of layer.weight (outputs, inputs) and of layer.bias
    ### (outputs). tensor.tensor_split(size, dim) gives the parts of all ranks
    weight, bias = layer.weight.tensor_split(size)[rank], layer.bias.tensor_split(size)[rank]
    ### END SOLUTION
    return products.linear(weight, bias)


def rows(layer, rank, size):
    """An nn.Linear, without a bias, that computes a term of the outputs of `layer`, from this rank's part of the
    inputs. Where they can't be divided evenly, the first ranks have one more."""
    ### BEGIN SOLUTION rows:
    ### `weight`: this rank's part of layer.weight (outputs, inputs), for its part of the inputs
    weight = layer.weight.tensor_split(size, dim=1)[rank]
    ### END SOLUTION
    return products.linear(weight, None)


class Split(nn.Module):
    """An attention or an MLP of which each rank has a part: as the whole one, on every rank."""

    def __init__(self, part, bias, group):
        super().__init__()
        self.part, self.bias, self.group = part, bias, group  # the bias of the last layer is the same on all ranks

    def forward(self, tokens):
        ### BEGIN SOLUTION split_forward:
        ### `outputs`: what the whole gives for `tokens`. self.part(...) gives a term, without
        ### self.bias; Enter.apply(..., self.group) and Leave.apply(..., self.group) belong around
        ### it
        outputs = Leave.apply(self.part(Enter.apply(tokens, self.group)), self.group) + self.bias
        ### END SOLUTION
        return outputs


def split_mlp(mlp, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    mlp.up = columns(mlp.up, rank, size)
    bias, mlp.down = mlp.down.bias, rows(mlp.down, rank, size)
    return Split(mlp, bias, group)


def split_attention(attention, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    products.check_heads(attention.heads, size)
    ### BEGIN SOLUTION split_attention:
    ### give `attention` the layers and the number of heads of this rank, and `bias` the bias of the
    ### whole; see split_mlp. The first heads belong to rank 0
    attention.query = columns(attention.query, rank, size)
    attention.key = columns(attention.key, rank, size)
    attention.value = columns(attention.value, rank, size)
    bias, attention.out = attention.out.bias, rows(attention.out, rank, size)
    attention.heads //= size
    ### END SOLUTION
    return Split(attention, bias, group)


def split(model, group=None):
    """Split the blocks of a Transformer among the ranks of `group` (None: all), in place. All ranks have the same
    parameters before."""
    for block in model.blocks:  # the patches and the head are whole on all ranks
        block.attention = split_attention(block.attention, group)
        block.mlp = split_mlp(block.mlp, group)
    return model


if __name__ == "__main__":
    products.compare(split)
