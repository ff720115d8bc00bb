"""Helpers of products_sequence.py (unit model_parallel): collectives of sequences that are divided among ranks."""

import torch
import torch.distributed as dist
from torch import nn

from handson.errors import TrackError


def check_tokens(tokens, ranks):
    """Refuse a number of tokens that cannot be divided among `ranks` ranks. Raises TrackError."""
    if tokens % ranks:
        fitting = ", ".join(str(number) for number in range(1, tokens + 1) if tokens % number == 0)
        raise TrackError(
            f"the {tokens} tokens of an image cannot be divided among {ranks} ranks: split them among {fitting} ranks",
            True,
        )


def all_gather(mine, group=None):
    """Return the tokens of all ranks of `group`, in the order of the ranks. mine: this rank's, (images, tokens,
    width)."""
    parts = [torch.empty_like(mine, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, mine.contiguous(), group=group)
    return torch.cat(parts, dim=1)


def reduce_scatter(terms, group=None):
    """Sum all ranks' `terms` (images, all tokens, width), and return the part for this rank's tokens."""
    parts = [part.contiguous() for part in terms.chunk(dist.get_world_size(group), dim=1)]
    mine = torch.empty_like(parts[0])
    dist.reduce_scatter(mine, parts, group=group)
    return mine


def _own(tokens, group):
    return tokens.chunk(dist.get_world_size(group), dim=1)[dist.get_rank(group)].clone()


class _OwnTokens(torch.autograd.Function):
    @staticmethod
    def forward(context, tokens, group):
        context.group = group
        return _own(tokens, group)

    @staticmethod
    def backward(context, gradient):
        return all_gather(gradient, context.group), None


class _AllTokens(torch.autograd.Function):
    @staticmethod
    def forward(context, mine, group):
        context.group = group
        return all_gather(mine, group)

    @staticmethod
    def backward(context, gradient):
        return _own(gradient, context.group), None


class OwnTokens(nn.Module):
    """Map tokens (images, all tokens, width), which are equal on all ranks of `group`, to this rank's tokens."""

    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, tokens):
        return _OwnTokens.apply(tokens, self.group)


class AllTokens(OwnTokens):
    """Map this rank's tokens to all tokens. All ranks then compute the same, so each rank has the whole gradient."""

    def forward(self, mine):
        return _AllTokens.apply(mine, self.group)
