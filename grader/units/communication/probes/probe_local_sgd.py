"""The probe of local_sgd.py: each rank trains a small network on its own batches, and runs the student's code after
each block."""

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from grader.probes.count_collectives import Collectives
from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import batch, flat, join, network, precision
from grader.sandbox.rank import StudentMistake

RATE = 0.5  # the learning rate
IMAGES = 3  # per rank and step


def step(model, case, number, rank):
    """Run step `number` of SGD on a rank, which changes the parameters of `model`."""
    images, labels = batch(case["seed"], number, [IMAGES] * case["ranks"], rank)
    gradients = torch.autograd.grad(F.cross_entropy(model(images), labels), list(model.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter -= RATE * gradient


@precision()
def blocks(rank, ranks, source, case):
    """Return the parameters of this rank at the end of each block ("mine"), the parameters with which the next block
    starts ("blocks"), block.velocity after each block ("velocities"), and the collectives of each block, [name, bytes]
    ("sent")."""
    join(rank, ranks)
    model, student = network(case["seed"]), GapCode(source)
    block = student.module.Block(torch.from_numpy(flat(model.parameters())), case["period"], case["momentum"])
    collectives, own, found, velocities, sent = Collectives(), [], [], [], []
    for number in range(case["period"] * case["blocks"]):
        step(model, case, number, rank)
        if (number + 1) % case["period"]:
            continue
        mine = parameters_to_vector(model.parameters()).detach()
        own.append(mine.numpy().copy())
        with collectives.noted(all_ended=True):
            if source["gap"] == "mean":
                block.start = _like(mine, student.run(mine=mine).mean, "`mean`")
            elif student.run(block=block, mean=mean_of_ranks(mine)).block is not block:
                raise StudentMistake(
                    "`block` is a different object after your code, but the next step uses the old object: set"
                    " block.velocity and block.start of the given block"
                )
        _like(mine, block.start, "block.start")
        velocities.append(_velocity(block, mine))
        vector_to_parameters(torch.as_tensor(block.start).clone(), model.parameters())
        found.append(flat(model.parameters()))
        sent.append(collectives.hand_over())
    return {"mine": own, "blocks": found, "velocities": velocities, "sent": sent}


def _like(mine, found, name):
    """Return `found`. Raises StudentMistake if it does not have a number for each parameter."""
    if (shape := tuple(numpy.shape(found))) != tuple(mine.shape):
        raise StudentMistake(
            f"{name} has the shape {shape}, but it needs a number for each of the {len(mine)} parameters, like `mine`:"
            " the mean is over the ranks, not over the parameters"
        )
    return found


def _velocity(block, mine):
    """Return block.velocity as an array with a number for each parameter; it may be the initial 0.0."""
    velocity = torch.as_tensor(block.velocity, dtype=torch.float64).detach()
    if velocity.ndim:
        _like(mine, velocity, "block.velocity")
    return velocity.expand(mine.shape).numpy().copy()


def mean_of_ranks(mine):
    """Return the right result of the gap `mean`."""
    everybodys = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, mine)
    return torch.stack(everybodys).mean(dim=0)
