"""The right results of data_parallel.py: the parameters of rank 0, and the gradients of one batch that holds the
batches of all ranks."""

import numpy
import torch
import torch.nn.functional as F

from grader.probes.pytorch_scripts import batch, flat, network
from grader.units.communication.probes.probe_data_parallel import NOT_YET, OWN, means, own_gradients


def broadcast(rank, ranks, case):
    own = [flat(network(case["seed"] + other).parameters()) for other in range(case["ranks"])]
    return {"right": own[0], "own": own}


def ready(rank, ranks, case):
    """Return "right" [steps][numbers], "own" [ranks][steps][numbers], and the values of mistakes."""
    ranks = case["ranks"]
    own = [[flat(own_gradients(case, other, ranks, step)) for step in range(case["steps"])] for other in range(ranks)]
    right = numpy.stack([_big_batch(case, step) for step in range(case["steps"])])
    return {
        "right": right,
        "own": own,
        "`self.mean` is the sum of the gradients: divide by the number of ranks": ranks * right,
        "`self.mean` is divided by the number of ranks twice: divide once": right / ranks,
    }


def _big_batch(case, step):
    model, ranks = network(case["seed"]), case["ranks"]
    images, labels = zip(*(batch(case["seed"], step, [3] * ranks, rank) for rank in range(ranks)))
    F.cross_entropy(model(torch.cat(images)), torch.cat(labels)).backward()
    return flat([parameter.grad for parameter in model.parameters()][::-1])


def wait(rank, ranks, case):
    right = numpy.stack([flat(means(case, step)) for step in range(2)])
    return {
        "right": right,
        "parameter.grad is divided once more: `self.mean` is the mean already": right / 2,
        "parameter.grad is the sum of the mean and this rank's own gradient: replace the gradient with the mean": right
        + OWN,
        "`self.mean` is read before self.work.wait(): it is the mean only after the all-reduce": numpy.full_like(
            right, NOT_YET
        ),
        "parameter.grad still has this rank's own gradient: copy the parts of `self.mean` into it": numpy.full_like(
            right, OWN
        ),
    }
