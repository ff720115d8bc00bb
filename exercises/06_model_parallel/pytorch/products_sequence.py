"""Tensor and sequence parallelism for a transformer: torchrun --standalone --nproc-per-node 2 products_sequence.py

In products.py, all ranks hold all tokens between two split parts. Here each rank holds only its own tokens there
(Korthikanti et al., "Reducing Activation Recomputation", 2022). An all-reduce is a reduce-scatter and an all-gather, so
the ranks send the same number of bytes.
"""

import torch
import torch.distributed as dist
from products import Split, split
from torch import nn

from handson.pytorch.products import compare
from handson.pytorch.sequences import AllTokens, OwnTokens, all_gather, check_tokens, reduce_scatter

# PUT YOUR CODE: Write the torch.autograd.Functions `Gather` and `Scatter`; forward has the arguments
# of Enter and Leave in products.py. Use all_gather(mine, group), which returns the tokens of all
# ranks, and reduce_scatter(terms, group), which returns the sum over all ranks for this rank's
# tokens. Gather starts a split part: forward returns all tokens; backward gets this rank's term of
# their gradient, and returns the gradient of `mine`. Scatter ends it: forward returns the sum of all
# ranks' terms for this rank's tokens; backward gets the gradient of these tokens, and returns the
# gradient of `terms`
raise NotImplementedError("PUT YOUR CODE: gather_and_scatter")


class SplitSequence(Split):
    """A split attention or MLP that receives and returns only this rank's tokens."""

    def forward(self, mine):
        return Scatter.apply(self.part(Gather.apply(mine, self.group)), self.group) + self.bias


def split_sequence(model, group=None):
    """Split the blocks of a Transformer, and the tokens between their split parts, in place among the ranks of `group`
    (None: all ranks). Before the call, all ranks have the same parameters."""
    check_tokens(len(model.patches.position_embedding), dist.get_world_size(group))
    split(model, group)
    for block in model.blocks:
        block.attention = SplitSequence(block.attention.part, block.attention.bias, group)
        block.mlp = SplitSequence(block.mlp.part, block.mlp.bias, group)
        whole = [block.attention.bias, block.mlp.bias, *block.norm1.parameters(), *block.norm2.parameters()]
        for parameter in whole:  # each rank has used these for its own tokens only
            parameter.register_post_accumulate_grad_hook(lambda one: dist.all_reduce(one.grad, group=group))
    # the patches and the head are whole on all ranks, and need all tokens
    model.blocks = nn.Sequential(OwnTokens(group), *model.blocks, AllTokens(group))
    return model


if __name__ == "__main__":
    compare(split, split_sequence)
