"""A parameter server: rank 0 keeps the parameters and makes the steps, all other ranks compute gradients.

All parameters travel as one long tensor. After each such answer to a gradient, the server says in a message of its own
whether the training goes on.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

GO_ON, STOP = torch.tensor([True]), torch.tensor([False])


def serve(parameters, lr, updates, evaluate):
    """Rank 0, asynchronous: make a step with each gradient as it comes, whichever worker has sent it. Nobody waits for
    anybody else.

    parameters: changed in place. evaluate(version) is called after each step. Returns the staleness of each gradient:
    how many steps were made between the moment when its worker got the parameters and the moment when it is used.
    """
    # the number of steps so far; after how many of them each worker got its parameters
    version, has = 0, [0] * dist.get_world_size()
    gradient, staleness = torch.empty_like(parameters), []
    while version < updates:
        # PUT YOUR CODE: `worker = dist.recv(gradient)` waits for a gradient of any rank, and says whose it
        # is. Note its staleness, make the step of SGD, count it, send `worker` the parameters, and note in
        # has[worker] after how many steps it got them
        raise NotImplementedError("PUT YOUR CODE: serve")
        dist.send(GO_ON, worker)
        evaluate(version)
    for _ in range(1, dist.get_world_size()):  # each worker sends one more gradient, which comes too late
        worker = dist.recv(gradient)
        dist.send(parameters, worker)
        dist.send(STOP, worker)
    return staleness


def serve_together(parameters, lr, updates, evaluate):
    """Rank 0, synchronous, to compare: each step waits for the gradients of all workers, and takes their mean. The
    staleness is 0."""
    workers = range(1, dist.get_world_size())
    gradients = [torch.empty_like(parameters) for _ in workers]
    for version in range(1, updates + 1):
        for worker, gradient in zip(workers, gradients):
            dist.recv(gradient, worker)
        parameters -= lr * torch.stack(gradients).mean(dim=0)
        for worker in workers:
            dist.send(parameters, worker)
            dist.send(GO_ON if version < updates else STOP, worker)
        evaluate(version)
    return [0] * updates


def work(model, batches):
    """All other ranks: compute gradients on `batches`, pairs of images and labels without end, until the server has
    enough."""
    device = next(model.parameters()).device
    parameters = parameters_to_vector(model.parameters()).detach().cpu()
    goes_on = torch.empty_like(GO_ON)
    for images, labels in batches:
        loss = F.cross_entropy(model(images), labels)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        gradient = torch.cat([one.flatten() for one in gradients]).cpu()
        # PUT YOUR CODE: send `gradient` to the server, rank 0, and receive its answer into `parameters`
        raise NotImplementedError("PUT YOUR CODE: work")
        dist.recv(goes_on, 0)
        if not goes_on:
            return
        vector_to_parameters(parameters.to(device), model.parameters())
