"""Your solution. The grader runs `train` on four ranks; all that it needs must be in this file."""

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from handson.pytorch.challenge_task import loss_of

# PUT YOUR CODE: before you measure: how many times as fast as the plain solution will yours be?
SPEED_UP = None


def train(task):
    """Train task.network(), and return it. That of rank 0 counts. `task` is a handson.pytorch.challenge_task.Task."""
    # PUT YOUR CODE: any training that fits into the memory and reaches the loss; you may write functions
    # and classes above
    raise NotImplementedError("PUT YOUR CODE: train")
