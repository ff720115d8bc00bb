"""A layer of experts on different ranks. train_experts.py trains with it.

Each token goes to one expert (Fedus, Zoph and Shazeer, "Switch transformers", 2021). Every rank holds the whole router
and some of the experts. Each token travels to the rank of its expert and back.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from handson.pytorch.experts import capacity_of, check_experts
from handson.pytorch.transformer import MLP


def within_capacity(expert, experts, capacity):
    """Return which tokens (n) their experts accept: each expert accepts the first `capacity` tokens that chose it."""
    # PUT YOUR CODE: set `kept` to a bool for each token. `expert` (n) contains the number of each token's
    # expert. F.one_hot(expert, experts).cumsum(0) counts the tokens that each expert has got so far
    raise NotImplementedError("PUT YOUR CODE: within_capacity")
    return kept


def balancing_loss(probabilities, expert):
    """Return the balancing loss. It is 1 if all experts get the same number of tokens, and usually larger otherwise.

    probabilities (n, experts): the output of the router; expert (n): the number of each token's expert.
    """
    experts = probabilities.shape[1]
    # PUT YOUR CODE: set `loss` to `experts` times a sum over the experts: the share of the tokens that an
    # expert gets, times the mean of its probabilities
    raise NotImplementedError("PUT YOUR CODE: balancing_loss")
    return loss


class Exchange(torch.autograd.Function):
    """Exchange.apply(tokens, sends, receives) sends the first sends[0] of the tokens (n, width) to rank 0, the next
    sends[1] to rank 1, and so on. It returns receives[r] tokens from each rank r, in the order of the ranks."""

    @staticmethod
    def forward(context, tokens, sends, receives):
        context.sends, context.receives = sends, receives
        # PUT YOUR CODE: set `arrived` to a new tensor (sum(receives), width), and fill it with one
        # dist.all_to_all_single(arrived, tokens, output_split_sizes, input_split_sizes)
        raise NotImplementedError("PUT YOUR CODE: exchange_forward")
        return arrived

    @staticmethod
    def backward(context, gradient):
        sends, receives = context.sends, context.receives
        # PUT YOUR CODE: set `of_tokens` to the gradient of `tokens`. `gradient` (sum(receives), width) is the
        # gradient of `arrived`. Each row travels back to the rank from which its token came
        raise NotImplementedError("PUT YOUR CODE: exchange_backward")
        return of_tokens, None, None


class Experts(nn.Module):
    """A mixture of experts, which replaces an MLP. All ranks create all experts, so that an expert starts with the same
    parameters for any number of ranks. Then each rank keeps only its own experts."""

    def __init__(self, width, experts, capacity_factor):
        super().__init__()
        rank, size = dist.get_rank(), dist.get_world_size()
        check_experts(experts, size)
        self.router = nn.Linear(width, experts, bias=False)
        self.mine = nn.ModuleList([MLP(width) for _ in range(experts)][rank * experts // size :][: experts // size])
        self.experts, self.capacity_factor = experts, capacity_factor
        self.balance, self.counts, self.dropped = None, None, 0

    def forward(self, tokens):
        flat = tokens.flatten(0, -2)
        probabilities = self.router(flat).softmax(dim=-1)
        weight, expert = probabilities.max(dim=-1)
        self.balance = balancing_loss(probabilities, expert)
        capacity = capacity_of(len(flat), self.experts, self.capacity_factor)
        kept = within_capacity(expert, self.experts, capacity).nonzero().squeeze(1)
        kept = kept[expert[kept].argsort(stable=True)]  # sorted by expert
        self.counts, self.dropped = expert.bincount(minlength=self.experts), len(flat) - len(kept)
        done = self.elsewhere(flat[kept], expert[kept].bincount(minlength=self.experts))
        # a dropped token gets 0 here, so the block passes it on unchanged
        return torch.zeros_like(flat).index_copy(0, kept, weight[kept, None] * done).view_as(tokens)

    def elsewhere(self, tokens, counts):
        """Return the outputs of the experts for tokens that are sorted by expert. counts: tokens for each expert."""
        size = dist.get_world_size()
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)  # tokens from each rank for each of my experts
        sends, receives = (of.view(size, -1).sum(1).tolist() for of in (counts, theirs))
        arrived = Exchange.apply(tokens, sends, receives)
        # `parts` are sorted by rank, then by expert; an expert computes all its tokens at once
        parts = arrived.split(theirs.tolist())
        number = len(self.mine)
        done = [
            expert(torch.cat(parts[place::number])).split(theirs[place::number].tolist())
            for place, expert in enumerate(self.mine)
        ]
        done = torch.cat([done[place][rank] for rank in range(size) for place in range(number)])
        return Exchange.apply(done, receives, sends)
