"""A parameter server: rank 0 holds the parameters and updates them; all other ranks (workers) compute gradients.

The server answers each gradient with all parameters in one long tensor. A second message then tells the worker whether
training continues.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

GO_ON, STOP = torch.tensor([True]), torch.tensor([False])


def serve(parameters, lr, updates, evaluate):
    """Run an asynchronous server on rank 0: update the parameters whenever a gradient arrives from any worker. No
    worker waits for another worker.

    parameters: changed in place. evaluate(version) is called after each update. Return the staleness of each gradient:
    the number of updates between the moment when its worker received the parameters and the moment when the gradient
    arrives.
    """
    # the number of updates so far, and that number when each worker last received parameters
    version, has = 0, [0] * dist.get_world_size()
    gradient, staleness = torch.empty_like(parameters), []
    while version < updates:
        # PUT YOUR CODE: receive a gradient: `worker = dist.recv(gradient)` waits for a gradient from any
        # worker, and returns the rank of this worker. Append the staleness of the gradient to `staleness`.
        # Run a step of SGD, and increase `version` by 1. Send the parameters to `worker`, and set has[worker]
        # to the new version
        raise NotImplementedError("PUT YOUR CODE: serve")
        dist.send(GO_ON, worker)
        evaluate(version)
    for _ in range(1, dist.get_world_size()):  # each worker sends one more gradient, which arrives too late
        worker = dist.recv(gradient)
        dist.send(parameters, worker)
        dist.send(STOP, worker)
    return staleness


def serve_together(parameters, lr, updates, evaluate):
    """Run a synchronous server on rank 0, for comparison: each update waits for the gradients of all workers, and uses
    their mean. The staleness is 0."""
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
    """Compute gradients on a worker until the server ends training. batches: an endless iterable of (images,
    labels)."""
    device = next(model.parameters()).device
    parameters = parameters_to_vector(model.parameters()).detach().cpu()
    goes_on = torch.empty_like(GO_ON)
    for images, labels in batches:
        loss = F.cross_entropy(model(images), labels)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        gradient = torch.cat([one.flatten() for one in gradients]).cpu()
        # PUT YOUR CODE: send `gradient` to the server, rank 0. Receive its answer into `parameters`
        raise NotImplementedError("PUT YOUR CODE: work")
        dist.recv(goes_on, 0)
        if not goes_on:
            return
        vector_to_parameters(parameters.to(device), model.parameters())
