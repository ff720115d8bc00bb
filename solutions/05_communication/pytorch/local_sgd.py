"""Local SGD and block momentum: each rank runs some steps by itself (a block), then all ranks average their
parameters."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters


@dataclass
class Block:
    """The state of a rank that outlives a block."""

    start: torch.Tensor  # all parameters at the start of this block, in one long tensor, equal on all ranks
    period: int  # steps per block
    momentum: float  # 0: local SGD
    velocity: torch.Tensor | float = 0.0  # of the block momentum: a tensor like `start` after the first block
    steps: int = 0


def average(mine):
    """Return the mean of all ranks' `mine`, a long tensor."""
    ### BEGIN SOLUTION mean: set `mean` to the mean of all ranks' `mine`, with a single all-reduce
    mean = mine / dist.get_world_size()
    dist.all_reduce(mean)
    ### END SOLUTION
    return mean


def end_block(block, mean):
    """Set the parameters with which the next block starts. mean: of all ranks' parameters at the end of this block.

    Blockwise model-update filtering: Chen and Huo, "Scalable training of deep learning machines by incremental block
    training with intra-block parallel optimization and blockwise model-update filtering", ICASSP 2016.
    """
    ### BEGIN SOLUTION block_momentum:
    ### compute the step of this block: `mean` minus block.start. Set block.velocity to
    ### block.momentum times the old velocity, plus this step. Add the new velocity to block.start
    block.velocity = block.momentum * block.velocity + (mean - block.start)
    block.start = block.start + block.velocity
    ### END SOLUTION


def after_step(model, block):
    """Count an optimizer step. At the end of a block, all ranks' models get the same parameters."""
    block.steps += 1
    if block.steps % block.period == 0:
        mine = parameters_to_vector(model.parameters()).detach()
        end_block(block, average(mine))
        # a copy, because the parameters become views of it
        vector_to_parameters(block.start.clone(), model.parameters())
