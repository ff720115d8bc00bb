"""A parameter server: rank 0 keeps the parameters and makes the steps, all other ranks compute gradients.

All parameters travel as one long tensor. Its last number is 1, and becomes 0 when the training is over.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from handson.pytorch import messages


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
        # is. Note its staleness, make the step of SGD, count it, and send `worker` the parameters
        raise NotImplementedError("PUT YOUR CODE: serve")
        evaluate(version)
    messages.dismiss(parameters)
    return staleness


def serve_together(parameters, lr, updates, evaluate):
    """Rank 0, synchronous, to compare: each step waits for the gradients of all workers, and takes their mean. The
    staleness is 0."""
    workers = range(1, dist.get_world_size())
    for version in range(1, updates + 1):
        gradients = torch.stack([messages.receive(parameters, worker) for worker in workers])
        parameters -= lr * gradients.mean(dim=0)
        parameters[-1] = version < updates
        for sending in [messages.send(parameters, worker) for worker in workers]:
            sending.wait()
        evaluate(version)
    return [0] * updates


def work(model, batches):
    """All other ranks: compute gradients on `batches`, pairs of images and labels without end, until the server has
    enough."""
    parameters = messages.vector(model, 1).cpu()
    for images, labels in batches:
        loss = F.cross_entropy(model(images), labels)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        gradient = messages.vector(gradients, 0).cpu()
        # PUT YOUR CODE: send `gradient` to the server, rank 0, and receive its answer into `parameters`
        raise NotImplementedError("PUT YOUR CODE: work")
        if not parameters[-1]:
            return
        messages.load(parameters, model)
