"""Your solution. The grader runs `train` on four ranks, and this file must contain all of your code."""

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from handson.pytorch.challenge_task import loss_of

# PUT YOUR CODE: set SPEED_UP to your prediction before you measure: the seconds of the plain
# solution, divided by the seconds of yours
SPEED_UP = None


def train(task):
    """Train task.network(), and return it. The network of rank 0 counts. `task` is a
    handson.pytorch.challenge_task.Task."""
    # PUT YOUR CODE: write any training that fits into the memory and reaches the loss. You may add
    # functions and classes above
    raise NotImplementedError("PUT YOUR CODE: train")
