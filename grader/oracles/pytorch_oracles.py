"""The expected observations of probes, and those of misconceptions. One process computes them, without a student's
code.

Each oracle is called as ``oracle(rank, ranks, case)`` in a separate process (ranks is 1), forked from a server that has
loaded torch.
"""

import numpy
import torch
import torch.nn.functional as F
from torch.utils.data import DistributedSampler

from grader.probes.pytorch_scripts import NormalizingNetwork, batch, examples, flat, network, part, pictures, seed_of
from handson.pytorch.model import ConvNet
from handson.training.data import enlarge


def step(rank, ranks, case):
    """Return {"start": the initial parameters; "right": those (1, steps, numbers) after each step, whose gradients are
    the mean of the ranks' mean gradients; sentence on a misconception: the resulting parameters; "losses", "classes":
    in each step the mean of the ranks' losses, and the network's class for each image of each rank}."""
    rules = {
        "right": {},
        "the gradients are not cleared: those of the last step are still in them (`optimizer.zero_grad()`)": {
            "clear": False
        },
        "each batch makes two updates: `optimizer.step()` belongs there once": {"update": 2},
        (
            "the parameters never change: `optimizer.step()` comes after `backward()`, with the gradients not yet"
            " cleared"
        ): {"update": 0},
        "a softmax is taken before the loss: `F.cross_entropy` needs the network's scores as they are": {
            "softmax": True
        },
        "the loss is the sum over the images of the batch, not their mean": {"weights": "sum"},
        "the loss is divided by the number of images twice": {"weights": "twice"},
    }
    size = len(case["lengths"])
    if "ranks" in case:
        rules[
            "the gradients are divided by the number of ranks once too often: DistributedDataParallel takes their mean"
            " over the ranks already"
        ] = {"scale": 1 / size}
        rules[
            "the gradients are multiplied by the number of ranks: DistributedDataParallel takes their mean, and that is"
            " what the step needs"
        ] = {"scale": size}
        rules[
            "rank 0 updates with its own gradients alone: `outputs` come from `model` as it is given, which averages"
            " them unless `no_sync` switches that off"
        ] = {"scale": size, "ranks": 1}
    found = {sentence: _train(case, **rule) for sentence, rule in rules.items()}
    return {sentence: trace[None] for sentence, (trace, _, _) in found.items()} | {
        "start": flat(network(seed_of(case)).parameters()),
        "losses": found["right"][1],
        "classes": found["right"][2],
    }


def _train(case, clear=True, update=1, scale=1.0, weights="mean", softmax=False, ranks=None):
    """Return (the parameters after each step, the mean losses, the classes for each rank's images), by one of the rules
    of `step`."""
    model, trace, losses, classes = network(seed_of(case)), [], [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    size = len(case["lengths"])
    for number in range(case["steps"]):
        if clear:
            optimizer.zero_grad()
        losses.append(0.0)
        classes.append([])
        for of_rank in range(size)[:ranks]:
            images, labels = batch(case["seed"], number, case["lengths"], of_rank)
            outputs, own = model(images), len(labels)
            loss = F.cross_entropy(outputs.softmax(dim=1) if softmax else outputs, labels, reduction="sum")
            losses[-1] += loss.item() / own / size
            classes[-1].append(outputs.argmax(dim=1).tolist())
            (scale * loss / {"mean": own, "sum": 1, "twice": own**2}[weights] / size).backward()
        for _ in range(update):
            optimizer.step()
        trace.append(flat(model.parameters()))
    return numpy.stack(trace), losses, classes


def replica(rank, ranks, case):
    """Return the initial parameters, and the gradients of the network for two batches: the mean, the sum and the list
    of the gradients of each rank's mean loss."""
    model, own = network(seed_of(case), NormalizingNetwork), []
    everything = examples(sum(case["lengths"]), case["seed"])
    for number in range(len(case["lengths"])):
        mine, of_rank = part(everything, case["lengths"], number), []
        for images in (mine.images, mine.images.flip(0)):
            model.zero_grad()
            F.cross_entropy(model(images), mine.labels).backward()
            of_rank.append(flat(parameter.grad for parameter in model.parameters()))
        own.append(numpy.stack(of_rank))
    return {
        "start": flat(model.parameters()),
        "mean": numpy.mean(own, axis=0),
        "sum": numpy.sum(own, axis=0),
        "own": numpy.stack(own),
    }


def order(rank, ranks, case):
    """Return {"orders": for each rank the order of its images after the sampler's set_epoch with 0, 1, 2, ...}."""
    orders = []
    for rank in range(case["ranks"]):
        sampler = DistributedSampler(range(case["images"]), case["ranks"], rank, seed=seed_of(case))
        orders.append([])
        for epoch in range(8):
            sampler.set_epoch(epoch)
            orders[-1].append(list(sampler))
    return {"orders": orders}


def run(rank, ranks, case):
    """Return the parameters at the end of a run in one process, in which each step takes all images of the case's data
    set."""
    seed = seed_of(case)
    data = pictures(case["images"], "ranks" in case, seed)
    torch.manual_seed(seed)
    model = ConvNet(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for _ in range(case["epochs"]):
        optimizer.zero_grad()
        F.cross_entropy(model(enlarge(data.images, 64)), data.labels).backward()
        optimizer.step()
    return {"parameters": flat(model.parameters())}
