"""The values that probes should observe, and the values that misconceptions lead to: computed in one process, without a
student's code.

Each oracle is called as ``oracle(rank, ranks, case)`` in a process of its own (ranks is 1), forked from a server that
has loaded torch.
"""

import numpy
import torch
import torch.nn.functional as F

from grader.probes.pytorch_scripts import NormalizingNetwork, batch, examples, flat, network, part, pictures, seed_of
from grader.probes.pytorch_scripts import enlarge as doubled
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.training.data import enlarge


def step(rank, ranks, case):
    """{"start": the parameters at first; "right": those (1, steps, numbers) after each step of one process on the whole
    batch; sentence on a misconception: the parameters that it leads to; "losses", "classes": in each step the mean loss
    over the images, and the class that the network gives each image of each rank}."""
    rules = {"right": {}}
    rules["the gradients are not cleared: those of the last step are still in them (`optimizer.zero_grad()`)"] = {
        "clear": False
    }
    rules["the gradients are cleared only once an epoch: each step begins with `optimizer.zero_grad()`"] = {
        "clear": "in an epoch's first step"
    }
    rules["each batch makes two updates: `optimizer.step()` belongs there once"] = {"update": 2}
    rules[
        "the parameters never change: `optimizer.step()` comes after `backward()`, with the gradients not yet cleared"
    ] = {"update": 0}
    rules["a softmax is taken before the loss: `F.cross_entropy` needs the network's scores as they are"] = {
        "softmax": True
    }
    if "ranks" in case:
        size, images = len(case["lengths"]), "total"
        rules[
            "the gradients are divided by the number of ranks once too often: DistributedDataParallel takes their mean"
            " over the ranks, so multiply the loss by comm.size, and divide nothing afterwards"
        ] = {"scale": 1 / size}
        if 1 < (nodes := size // case.get("ranks_per_node", size)) < size:
            rules["the loss is multiplied by the number of nodes, not by comm.size, the number of ranks"] = {
                "scale": nodes / size
            }
        rules[
            "the gradients are multiplied by the number of ranks once too often: DistributedDataParallel takes their"
            " mean over the ranks already"
        ] = {"scale": size}
        rules[
            "rank 0 updates with its own gradients alone: `outputs` come from `replica`, which averages them unless"
            " `no_sync` switches that off"
        ] = {"scale": size, "ranks": 1}
        rules["the gradients are the sum over the images, not the mean: divide by `total`"] = {"scale": images}
        rules[
            "each rank divides by its own number of images: a rank with fewer images then weighs as much as one with"
            " more; divide by `total`"
        ] = {"weights": "own"}
        rules["the sum over a rank's images is divided by nothing: divide by `total`, and multiply by comm.size"] = {
            "scale": images,
            "weights": "mean",
        }
        rules["the mean over a rank's images is divided by `total` once more: the sum belongs there"] = {
            "weights": "twice"
        }
        rules["the sum is divided by args.batchsize, but batches can be smaller: divide by `total`"] = {
            "weights": "batchsize"
        }
        rules[
            "the sum is divided by the images of the whole epoch: divide by `total`, which has those of this step"
        ] = {"weights": "epoch"}
    else:
        rules["the loss is the sum over the images of the batch, not their mean"] = {"scale": "total"}
        rules["the loss is divided by the number of images twice"] = {"weights": "twice"}
        rules["the sum is divided by args.batchsize, but batches can be smaller: divide by the number of images"] = {
            "weights": "batchsize"
        }
    found = {sentence: _train(case, **rule) for sentence, rule in rules.items()}
    traces = {sentence: trace[None] for sentence, (trace, _, _) in found.items()}
    return traces | {
        "start": flat(_given(case)[0].parameters()),
        "losses": found["right"][1],
        "classes": found["right"][2],
    }


def _given(case):
    """The network, the number of steps in an epoch, and for each step of a run that never calls set_epoch: [(images,
    labels) of each rank]."""
    lengths, seed = case["lengths"], seed_of(case)
    if "steps" in case:  # a probe that gives each rank one batch a step
        steps = [
            [batch(case["seed"], number, lengths, rank) for rank in range(len(lengths))]
            for number in range(case["steps"])
        ]
        return network(case["seed"]), len(steps), steps
    everything = examples(sum(lengths), case["seed"])
    shards = [part(everything, lengths, rank) for rank in range(len(lengths))]
    epoch = list(zip(*(EpochBatches(lengths, rank, case["batchsize"], seed) for rank in range(len(lengths)))))
    steps = [
        [(doubled(shard.images[numbers]), shard.labels[numbers]) for shard, numbers in zip(shards, of_step)]
        for of_step in epoch
    ]
    return network(seed), len(steps), steps * case["epochs"]


def _train(case, clear=True, update=1, scale=1.0, weights="total", softmax=False, ranks=None):
    """(the parameters after each step, the mean losses, the classes for each rank's images), by one of the rules of
    `step`."""
    (model, steps_of_epoch, steps), trace, losses, classes = _given(case), [], [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    for number, of_ranks in enumerate(steps):
        total = sum(len(labels) for _, labels in of_ranks)
        if clear is True or clear and number % steps_of_epoch == 0:
            optimizer.zero_grad()
        losses.append(0.0)
        classes.append([])
        for images, labels in of_ranks[:ranks]:
            outputs, size, own = model(images), len(of_ranks), len(labels)
            loss = F.cross_entropy(outputs.softmax(dim=1) if softmax else outputs, labels, reduction="sum")
            losses[-1] += loss.item() / total
            classes[-1].append(outputs.argmax(dim=1).tolist())
            divisors = {
                "total": total,
                "own": own * size,
                "twice": own * total,
                "mean": total * size,
                "epoch": sum(case["lengths"]),
            }
            divisors["batchsize"] = case.get("batchsize", max(case["lengths"])) * size
            (loss / divisors[weights] * (total if scale == "total" else scale)).backward()
        for _ in range(update):
            optimizer.step()
        trace.append(flat(model.parameters()))
    return numpy.stack(trace), losses, classes


def replica(rank, ranks, case):
    """The parameters at the start, and the gradients of the network for two batches: the mean, the sum and the list of
    the gradients of each rank's mean loss."""
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


def shuffle(rank, ranks, case):
    """{"orders": for each rank the order of its images when the sampler was given the epoch 0, 1, 2, ...; "totals": in
    each step the images of all ranks}."""
    orders, begin = [], 0
    for rank, length in enumerate(case["lengths"]):
        sampler, of_rank = EpochBatches(case["lengths"], rank, case["batchsize"], seed_of(case)), []
        for epoch in range(8):
            sampler.set_epoch(epoch)
            of_rank.append([begin + number for numbers in sampler for number in numbers])
        orders.append(of_rank)
        begin += length
    return {"orders": orders, "totals": sampler.totals}


def run(rank, ranks, case):
    """Parameters at the end of a run in one process, in which each step takes the images of all ranks of `case`."""
    seed, images = case["seed"] % 1000, case["images"]
    data = pictures(images, "ranks" in case, seed)
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
