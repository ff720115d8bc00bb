"""Local SGD and block momentum: each rank makes some steps by itself (a block), then all ranks put together what they
have found."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from handson.pytorch import messages


@dataclass
class Block:
    """What a rank remembers from block to block."""

    start: torch.Tensor  # all parameters in one long tensor, with which all ranks began this block
    period: int  # steps in a block
    momentum: float  # 0: local SGD
    velocity: torch.Tensor | float = 0.0  # the momentum of the blocks: a tensor as `start`, once there is one
    steps: int = 0


def after_step(model, block):
    """Called after each step of the optimizer. At the end of a block, all ranks' models get the same parameters."""
    block.steps += 1
    if block.steps % block.period:
        return
    mine = messages.vector(model)
    # PUT YOUR CODE: `mean`: the mean of all ranks' `mine`, by one all-reduce
    raise NotImplementedError("PUT YOUR CODE: mean")
    # Blockwise model-update filtering: Chen and Huo, "Scalable training of deep learning machines by incremental block
    # training with intra-block parallel optimization and blockwise model-update filtering", ICASSP 2016.
    # PUT YOUR CODE: the step of this block is `mean` minus block.start; block.velocity: block.momentum
    # times itself, plus that step; block.start: itself plus the velocity
    raise NotImplementedError("PUT YOUR CODE: block_momentum")
    messages.load(block.start, model)
