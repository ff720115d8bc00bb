"""The oracles of the profiling scripts' probes. They compute in one process, without student code, and are called
like those in grader.oracles.pytorch_oracles."""

import numpy
import torch
import torch.nn.functional as F
from torch.utils.data import DistributedSampler

from grader.probes.pytorch_scripts import enlarge as doubled
from grader.probes.pytorch_scripts import examples, flat, network, seed_of
from grader.units.profiling.probes.probe_profiling_pytorch import (
    ENLARGED,
    LR,
    decoded,
    labels_of,
    pictures,
    small_network,
)
from handson.training.data import enlarge


def marks(rank, ranks, case):
    """Return the parameters after each step of a training run that uses all ranks' images as one batch, (steps,
    numbers)."""
    model, everything, trace = network(seed_of(case)), examples(case["images"], case["seed"]), []
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    for numbers in (torch.cat(parts) for of_epoch in _epochs(case) for parts in of_epoch):
        optimizer.zero_grad()
        F.cross_entropy(model(doubled(everything.images[numbers])), everything.labels[numbers]).backward()
        optimizer.step()
        trace.append(flat(model.parameters()))
    return {"parameters": numpy.stack(trace)}


def _epochs(case):
    """Return for each epoch and each step the numbers of each rank's images."""
    samplers = [
        DistributedSampler(range(case["images"]), case["ranks"], rank, seed=seed_of(case))
        for rank in range(case["ranks"])
    ]
    for epoch in range(case["epochs"]):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        yield list(zip(*(torch.tensor(list(sampler)).split(case["batchsize"]) for sampler in samplers)))


def training(rank, ranks, case):
    """Simulate training with case["ranks"] ranks in one process, rank after rank. Return the parameters at the end,
    the mean loss of each epoch, and the number of steps in an epoch."""
    images, labels = _images(case), labels_of(case["images"])
    torch.manual_seed(seed_of(case))
    model, losses = small_network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    for of_epoch in _epochs(case):
        of_steps = []
        for parts in of_epoch:
            optimizer.zero_grad()
            loss = sum(F.cross_entropy(model(images[part]), labels[part], reduction="sum") for part in parts) / sum(
                map(len, parts)
            )
            loss.backward()
            optimizer.step()
            of_steps.append(loss.item())
        losses.append(sum(of_steps) / len(of_steps))
    return {"parameters": flat(model.parameters()), "losses": losses, "steps": len(of_steps)}


def _images(case):
    """Return the images as the network gets them."""
    if case.get("files"):
        return decoded(case["images"], case["seed"])
    return enlarge(pictures(case["images"], case["seed"]), ENLARGED)
