"""A layer of experts, which live on different ranks: train_experts.py trains with it.

Each token goes to one expert (Fedus, Zoph and Shazeer, "Switch transformers", 2021). Every rank has all of the router,
and some of the experts: each token travels to the rank of its expert, and back.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from handson.pytorch.experts import capacity_of, check_experts
from handson.pytorch.transformer import MLP


def within_capacity(expert, experts, capacity):
    """Which tokens (n) their experts have room for: of those that chose one expert, the first `capacity` ones."""
    # PUT YOUR CODE: `kept`: a bool for each token. `expert` (n) has the number of each token's expert;
    # F.one_hot(expert, experts).cumsum(0) counts the tokens that each expert has got so far
    raise NotImplementedError("PUT YOUR CODE: within_capacity")
    return kept


def balancing_loss(probabilities, expert):
    """1 if all experts get equally many tokens, more if not. probabilities (n, experts): what the router gives; expert
    (n): the number of each token's expert."""
    experts = probabilities.shape[1]
    # PUT YOUR CODE: `loss`: `experts` times the sum, over the experts, of the share of the tokens that an
    # expert gets, times the mean of its probabilities
    raise NotImplementedError("PUT YOUR CODE: balancing_loss")
    return loss


class Exchange(torch.autograd.Function):
    """Exchange.apply(tokens, sends, receives): the first sends[0] of the tokens (n, width) go to rank 0, the next
    sends[1] to rank 1, and so on; receives[r] tokens come from rank r, and are returned in the ranks' order."""

    @staticmethod
    def forward(context, tokens, sends, receives):
        context.sends, context.receives = sends, receives
        # PUT YOUR CODE: `arrived`: a new tensor (sum(receives), width), by one
        # dist.all_to_all_single(arrived, tokens, output_split_sizes, input_split_sizes)
        raise NotImplementedError("PUT YOUR CODE: exchange_forward")
        return arrived

    @staticmethod
    def backward(context, gradient):
        sends, receives = context.sends, context.receives
        # PUT YOUR CODE: `of_tokens`: the gradient of `tokens`. `gradient` (sum(receives), width) is that of
        # what arrived: each row goes back to where its token came from
        raise NotImplementedError("PUT YOUR CODE: exchange_backward")
        return of_tokens, None, None


class Experts(nn.Module):
    """In place of an MLP. All ranks make all experts, for them to begin alike, and keep their own."""

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
        kept = kept[expert[kept].argsort(stable=True)]  # in the order of their experts
        self.counts, self.dropped = expert.bincount(minlength=self.experts), len(flat) - len(kept)
        done = self.elsewhere(flat[kept], expert[kept].bincount(minlength=self.experts))
        # a dropped token gets 0 here, so the block leaves it as it is
        return torch.zeros_like(flat).index_copy(0, kept, weight[kept, None] * done).view_as(tokens)

    def elsewhere(self, tokens, counts):
        """What the experts make of the tokens. counts: how many of them, in this order, each expert gets."""
        size = dist.get_world_size()
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)  # how many tokens of each rank each of my experts gets
        sends, receives = (of.view(size, -1).sum(1).tolist() for of in (counts, theirs))
        arrived = Exchange.apply(tokens, sends, receives)
        # by ranks and experts; an expert computes all its tokens at once
        parts = arrived.split(theirs.tolist())
        number = len(self.mine)
        done = [
            expert(torch.cat(parts[place::number])).split(theirs[place::number].tolist())
            for place, expert in enumerate(self.mine)
        ]
        done = torch.cat([done[place][rank] for rank in range(size) for place in range(number)])
        return Exchange.apply(done, receives, sends)
