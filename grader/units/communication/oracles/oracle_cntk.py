"""The right results of the learners of train_cntk.py: each is simulated for all workers in one process."""

import math

import numpy
import torch

from grader.probes.pytorch_scripts import flat, network
from grader.units.communication.communication_numbers import pixels
from grader.units.communication.probes.probe_cntk import CRITERION, PixelNet
from handson.pytorch.streams import Partition

ALONE = "the workers never communicate: wrap `local` in a distributed learner, with distributed_after=args.warm_up"
BLOCK = "block_size counts the samples of all workers together, not of each worker"


def minibatches(case, count=None):
    """Return [(images, one-hot labels) of each minibatch] of all workers, in the order of the source."""
    images, labels = pixels(case)
    order, left, found = Partition(case["samples"], case["samples"]), count or case["max_samples"], []
    while left > 0:
        numbers = order.take(min(case["minibatch"], left), 1, 0)
        left -= len(numbers)
        found.append((torch.from_numpy(images[numbers])[:, None], torch.eye(10, dtype=torch.float64)[labels[numbers]]))
    return found


def learner(rank, ranks, case):
    """Return {"right" or the sentence of a mistake: the parameters (workers, minibatches, numbers) per minibatch}."""
    block_size, warm_up = case["block_size"], case["warm_up"]
    rules = {ALONE: {"bits": 0, "block_size": 0}, "right": {}}
    if warm_up:
        rules["the workers communicate from the first minibatch on: pass distributed_after=args.warm_up"] = {
            "warm_up": 0
        }
    if block_size:
        rules |= {
            (
                "the workers exchange gradients in every minibatch: if args.block_size is not 0, use block momentum,"
                " which averages models once per block"
            ): {"block_size": 0},
            BLOCK: {"block_size": block_size * case["ranks"]},
            f"{BLOCK}: pass args.block_size as it is": {"block_size": max(1, block_size // case["ranks"])},
            "Nesterov's momentum is switched off: keep CNTK's default": {"nesterov": False},
            "the local momentum is kept after each block: keep CNTK's default, which resets it": {"reset": False},
        }
        if warm_up:
            sentence = (
                "the third argument is block_momentum_as_time_constant: pass the warm start by name,"
                " distributed_after=args.warm_up"
            )
            rules[sentence] = {"warm_up": 0, "momentum": math.exp(-block_size / warm_up)}
    else:
        rules |= {
            "the gradients have 32 bits, but args.bits is 1: pass num_quantization_bits=args.bits": {"bits": 32},
            "the gradients have one bit, but args.bits is 32: pass num_quantization_bits=args.bits": {"bits": 1},
            "the workers average models in blocks, but args.block_size is 0: use the data-parallel learner": {
                "block_size": case["minibatch"]
            },
        }
    return {sentence: simulate(case | rule) for sentence, rule in rules.items()}


def simulate(case):
    """Return the parameters (workers, minibatches, numbers). case["bits"] 0: the workers send nothing."""
    if case["block_size"]:
        return _blocks(case)
    ranks = case["ranks"]
    models = [network(case["seed"] % 1000, PixelNet) for _ in range(ranks)]
    optimizers = [torch.optim.SGD(model.parameters(), case["lr"], momentum=0.9) for model in models]
    residuals, seen, trace = [0.0] * ranks, 0, []
    for images, labels in minibatches(case):
        whole = seen < case["warm_up"]
        alone = whole or not case["bits"]
        parts = list(zip(*_parts(images, labels, whole, ranks)))
        gradients = [_gradient(model, *part) for model, part in zip(models, parts)]
        counts = [len(part[1]) for part in parts]
        if alone:
            means = [gradient / max(1, count) for gradient, count in zip(gradients, counts)]
        else:
            if case["bits"] == 1:
                owed = [gradient + residual for gradient, residual in zip(gradients, residuals)]
                gradients = [_one_bit(one, models[0]) for one in owed]
                residuals = [one - sent for one, sent in zip(owed, gradients)]
            means = [sum(gradients) / sum(counts)] * ranks
        for model, optimizer, mean, count in zip(models, optimizers, means, counts):
            if not alone or count:
                _step(model, optimizer, mean)
        seen += len(labels)
        trace.append([flat(model.parameters()) for model in models])
    return numpy.array(trace).swapaxes(0, 1)


def _blocks(case, nesterov=True, reset=True):
    """Simulate block momentum with 1 - 1 / workers, as Chen and Huo define it, or with case["momentum"]. Blocks start
    after the warm start."""
    ranks, momentum = case["ranks"], case.get("momentum", 1 - 1 / case["ranks"])
    models = [network(case["seed"] % 1000, PixelNet) for _ in range(ranks)]
    optimizers = [torch.optim.SGD(model.parameters(), case["lr"], momentum=0.9) for model in models]
    model = begin = flat(models[0].parameters())
    change, seen, in_block, trace = 0.0, 0, 0, []
    nesterov, reset = case.get("nesterov", nesterov), case.get("reset", reset)
    for images, labels in minibatches(case):
        alone = seen < case["warm_up"]
        for one, optimizer, mine, theirs in zip(models, optimizers, *_parts(images, labels, alone, ranks)):
            if len(theirs):
                _step(one, optimizer, _gradient(one, mine, theirs) / len(theirs))
        seen, in_block = seen + len(labels), 0 if alone else in_block + len(labels)
        if alone:
            model = begin = flat(models[0].parameters())
        if in_block >= case["block_size"]:
            mean = sum(flat(one.parameters()) for one in models) / ranks
            change = momentum * change + mean - begin
            model = model + change
            begin, in_block = model + momentum * change if nesterov else model, 0
            for one, optimizer in zip(models, optimizers):
                # a copy, because the parameters become views of it
                torch.nn.utils.vector_to_parameters(torch.from_numpy(begin.copy()), one.parameters())
                if reset:
                    optimizer.state.clear()
        trace.append([flat(one.parameters()) for one in models])
    return numpy.array(trace).swapaxes(0, 1)


def big_batch(rank, ranks, case):
    """Return {"parameters": those of one process after the last whole minibatch}."""
    return {"parameters": simulate(case | {"ranks": 1, "bits": 32, "warm_up": 0, "block_size": 0})[0, -1]}


def sessions(rank, ranks, case):
    """Return {"two", "three": the parameters after two and after three sweeps}."""
    plain = case | {
        "ranks": 1,
        "bits": 32,
        "warm_up": 0,
        "block_size": 0,
        "minibatch": case["batchsize"] * case["ranks"],
    }
    return {
        name: simulate(plain | {"max_samples": sweeps * case["samples"]})[0, -1]
        for name, sweeps in (("two", 2), ("three", 3))
    }


def _parts(images, labels, whole, ranks):
    """Return (the images of each rank, their labels): parts of a minibatch, or the `whole` minibatch for each rank."""
    return [[one] * ranks if whole else one.tensor_split(ranks) for one in (images, labels)]


def _gradient(model, images, labels):
    """Return the sum of the images' gradients, as one array."""
    model.zero_grad()
    CRITERION[0](model(images), labels).sum().backward()
    return flat(parameter.grad for parameter in model.parameters())


def _one_bit(owed, model):
    """Return `owed` as it arrives: for each parameter, every number that is 0 or more becomes the mean of these
    numbers, and every other number the mean of the others."""
    parts = []
    for part in numpy.split(owed, numpy.cumsum([parameter.numel() for parameter in model.parameters()])[:-1]):
        above = part >= 0
        parts.append(
            numpy.where(above, part[above].mean() if above.any() else 0, part[~above].mean() if (~above).any() else 0)
        )
    return numpy.concatenate(parts)


def _step(model, optimizer, gradient):
    begin = 0
    for parameter in model.parameters():
        parameter.grad = torch.from_numpy(gradient[begin : begin + parameter.numel()].copy()).view_as(parameter)
        begin += parameter.numel()
    optimizer.step()
