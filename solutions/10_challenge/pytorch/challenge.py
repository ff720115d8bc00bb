"""Your solution. The grader runs `train` on four ranks, and this file must contain all of your code."""

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from handson.pytorch.challenge_task import loss_of

### BEGIN SOLUTION prediction:
### set SPEED_UP to your prediction before you measure: the seconds of the plain solution, divided
### by the seconds of yours
SPEED_UP = 2.5
### GIVEN SPEED_UP = None
### END SOLUTION


def train(task):
    """Train task.network(), and return it. The network of rank 0 counts. `task` is a
    handson.pytorch.challenge_task.Task."""
    ### BEGIN SOLUTION train:
    ### write any training that fits into the memory and reaches the loss. You may add functions
    ### and classes above
    model = task.network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = task.batches(4)
    for step in range(1, 301):
        text, following = next(batches)
        loss_of(model(text), following).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 12 == 0:  # local SGD: each rank runs 12 steps by itself, then all average
            mean = parameters_to_vector(model.parameters()).detach() / task.ranks
            dist.all_reduce(mean)
            vector_to_parameters(mean, model.parameters())
    return model
    ### END SOLUTION
