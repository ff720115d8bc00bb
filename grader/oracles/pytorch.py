"""The values that probes should observe, and the values that misconceptions lead to: computed in one process, without a student's code.

Each oracle is called as ``oracle(rank, ranks, case)`` in a process of its own (ranks is 1), forked from a server that has loaded torch.
"""

import numpy
import torch
import torch.nn.functional as F

from grader.probes.pytorch import batch, flat, network, pictures
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.training.data import enlarge


def step(rank, ranks, case):
    """{"right": the parameters (1, steps, numbers) after each step of one process on the whole batch; sentence on a misconception: the
    parameters that it leads to}."""
    distributed = case.get("distributed")
    rules = {"right": {}}
    rules["the gradients are not cleared: those of the last step are still in them (`optimizer.zero_grad()`)"] = {"clear": False}
    rules["the parameters never change: `optimizer.step()` comes after `backward()`, with the gradients not yet cleared"] = {"update": False}
    rules["a softmax is taken before the loss: `F.cross_entropy` wants the network's scores as they are"] = {"softmax": True}
    if distributed:
        rules["the gradients come out divided by the number of ranks once too often: DistributedDataParallel takes the mean of "
              "the ranks' gradients, so each loss must be multiplied by comm.size"] = {"scale": 1 / len(case["lengths"])}  # fmt: skip
        rules["the gradients are the sum over the images, not the mean: divide by `total`"] = {"scale": sum(case["lengths"])}
        rules["each rank divides by its own number of images: a rank with fewer images then weighs as much as one with more; divide by "
              "`total`"] = {"weights": "own"}  # fmt: skip
        rules["the sum over a rank's images is divided by nothing: divide by `total`, and multiply by comm.size"] = {"scale": sum(case["lengths"]) / len(case["lengths"])}
        rules["the mean over a rank's images is divided by `total` once more: the sum belongs there"] = {"weights": "twice"}
    else:
        rules["the loss is the sum over the images of the batch, not their mean"] = {"scale": sum(case["lengths"])}
        rules["the loss is divided by the number of images twice"] = {"scale": 1 / sum(case["lengths"])}
    return {sentence: _train(case, **rule)[None] for sentence, rule in rules.items()}


def _train(case, clear=True, update=True, scale=1.0, weights="total", softmax=False):
    model, lengths, trace = network(case["seed"]), case["lengths"], []
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    optimizer.zero_grad()
    for number in range(case["steps"]):
        if clear:
            optimizer.zero_grad()
        for rank, length in enumerate(lengths):
            images, labels = batch(case["seed"], number, lengths, rank)
            outputs = model(images)
            loss = F.cross_entropy(outputs.softmax(dim=1) if softmax else outputs, labels, reduction="sum")
            share = {"total": 1 / sum(lengths), "own": 1 / length / len(lengths), "twice": 1 / length / sum(lengths)}[weights]
            (loss * share * scale).backward()
        if update:
            optimizer.step()
        trace.append(flat(model.parameters()))
    return numpy.stack(trace)


def replica(rank, ranks, case):
    """Rank 0's parameters at the start, and the gradients of its network: the mean, the sum and the list of the gradients of each rank's
    mean loss."""
    model, own = network(case["seed"]), []
    for number in range(len(case["lengths"])):
        model.zero_grad()
        images, labels = batch(case["seed"], 0, case["lengths"], number)
        F.cross_entropy(model(images), labels).backward()
        own.append(flat(parameter.grad for parameter in model.parameters()))
    return {"start": flat(model.parameters()), "mean": numpy.mean(own, axis=0), "sum": numpy.sum(own, axis=0), "own": numpy.stack(own)}


def run(rank, ranks, case):
    """Parameters at the end of a run in one process, in which each step takes the images of all ranks of `case`."""
    seed, images = case["seed"] % 1000, case["images"]
    data = pictures(images, case["task"] != "single_gpu", seed)
    batches = EpochBatches([images], 0, case["batchsize"] * case.get("ranks", 1), seed)
    torch.manual_seed(seed)
    model = ConvNet(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(case["epochs"]):
        batches.set_epoch(epoch)
        for numbers in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(enlarge(data.images[numbers], 64)), data.labels[numbers]).backward()
            optimizer.step()
    return {"parameters": flat(model.parameters())}
