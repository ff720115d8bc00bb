"""Local SGD and block momentum: each rank makes some steps by itself (a block), then all ranks put together what they
have found."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters


@dataclass
class Block:
    """What a rank remembers from block to block."""

    start: torch.Tensor  # all parameters in one long tensor, with which all ranks began this block
    period: int  # steps in a block
    momentum: float  # 0: local SGD
    velocity: torch.Tensor | float = 0.0  # the momentum of the blocks: a tensor as `start`, once there is one
    steps: int = 0


def average(mine):
    """The mean of all ranks' `mine`, a long tensor."""
    ### BEGIN SOLUTION mean: `mean`: the mean of all ranks' `mine`, by one all-reduce
    mean = mine / dist.get_world_size()
    dist.all_reduce(mean)
    ### END SOLUTION
    return mean


def end_block(block, mean):
    """Set where the next block starts. mean: of all ranks' parameters at the end of this one.

    Blockwise model-update filtering: Chen and Huo, "Scalable training of deep learning machines by incremental block
    training with intra-block parallel optimization and blockwise model-update filtering", ICASSP 2016.
    """
    ### BEGIN SOLUTION block_momentum:
    ### the step of this block is `mean` minus block.start; block.velocity: block.momentum times
    ### itself, plus that step; block.start: itself plus the velocity
    block.velocity = block.momentum * block.velocity + (mean - block.start)
    block.start = block.start + block.velocity
    ### END SOLUTION


def after_step(model, block):
    """Called after each step of the optimizer. At the end of a block, all ranks' models get the same parameters."""
    block.steps += 1
    if block.steps % block.period == 0:
        mine = parameters_to_vector(model.parameters()).detach()
        end_block(block, average(mine))
        # a copy, since the parameters become views of it
        vector_to_parameters(block.start.clone(), model.parameters())
