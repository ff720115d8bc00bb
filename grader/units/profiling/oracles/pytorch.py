"""The oracles of the profiling scripts' probes: computed in one process, without a student's code; called as in grader.oracles.pytorch."""

import numpy
import torch
import torch.nn.functional as F
from torch.utils.data import DistributedSampler

from grader.probes.pytorch import batch, flat, network
from grader.units.profiling.probes.pytorch import LR, labels_of, pictures, raw
from handson.pytorch.model import ConvNet
from handson.training.data import enlarge


def marks(rank, ranks, case):
    """The parameters after each step of a training of all ranks' images as one batch, (steps, numbers)."""
    model, trace = network(case["seed"]), []
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    for step in range(case["steps"]):
        images, labels = map(torch.cat, zip(*(batch(case["seed"], step, case["lengths"], worker) for worker in range(len(case["lengths"])))))
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        trace.append(flat(model.parameters()))
    return {"parameters": numpy.stack(trace)}


def training(rank, ranks, case):
    """A training of case["ranks"] ranks, computed in one process, rank after rank: the parameters at the end, the mean loss of each epoch,
    and the number of steps in an epoch."""
    seed, workers, images, labels = case["seed"] % 1000, case["ranks"], _images(case), labels_of(case["images"])
    samplers = [DistributedSampler(labels, workers, number, seed=seed) for number in range(workers)]
    torch.manual_seed(seed)
    model, losses = ConvNet(10), []
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    for epoch in range(case["epochs"]):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        of_steps = []
        for parts in zip(*(torch.tensor(list(sampler)).split(case["batchsize"]) for sampler in samplers)):
            optimizer.zero_grad()
            loss = sum(F.cross_entropy(model(images[part]), labels[part], reduction="sum") for part in parts) / sum(map(len, parts))
            loss.backward()
            optimizer.step()
            of_steps.append(loss.item())
        losses.append(sum(of_steps) / len(of_steps))
    return {"parameters": flat(model.parameters()), "losses": losses, "steps": len(of_steps)}


def _images(case):
    """The images as the network gets them."""
    if not case.get("files"):
        return enlarge(pictures(case["images"], case["seed"]), 64)
    images = F.avg_pool2d(raw(case["images"], case["seed"]).float(), 2)
    return torch.stack([(image - image.mean()) / image.std() for image in images])
