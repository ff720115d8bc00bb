"""The oracle of the evaluator's probe, called like those in grader.oracles.pytorch_oracles."""

import numpy
import torch
import torch.nn.functional as F

from grader.probes.pytorch_scripts import NormalizingNetwork, enlarge, examples, network, part, seed_of
from grader.units.multi_node.probes.probe_multi_node_pytorch import TRAINED, training_set


def evaluation(rank, ranks, case):
    """{"right": [loss, accuracy] of the whole test set, as rank 0 should find them after the first epoch; "second":
    after the second; sentence on a misconception: the values that it leads to after the first}."""
    right, training, batches, everything = [], [], [], examples(sum(case["lengths"]), case["seed"])
    for number, length in enumerate(case["lengths"]):
        mine = part(everything, case["lengths"], number)
        images, labels = enlarge(mine.images), mine.labels
        model = _model(case).eval()
        right.append(_sums(model(images), labels))
        cut = list(zip(images.split(case["batchsize"]), labels.split(case["batchsize"]))) if length else []
        batches += [_sums(model(some), theirs) / len(theirs) for some, theirs in cut]
        model.train()
        training.append(sum((_sums(model(some), theirs) for some, theirs in cut), numpy.zeros(2)))
    train_set, shards = training_set(len(case["lengths"]))
    model = _model(case).eval()
    of_training = _sums(model(enlarge(train_set.images)), train_set.labels) / sum(shards)
    mine = part(train_set, shards, 0)
    of_shard = _sums(model(enlarge(mine.images)), mine.labels) / shards[0]
    untrained = _model(case, 1.0).eval()
    twice = _model(case, TRAINED**2).eval()
    lengths, own = numpy.array(case["lengths"])[:, None], numpy.stack(right)
    means = own / numpy.maximum(lengths, 1)
    return {
        "right": own.sum(axis=0) / lengths.sum(),
        "second": _sums(twice(enlarge(everything.images)), everything.labels) / lengths.sum(),
        "these are of rank 0's own part of the test set: the parts are not put together (`all_ranks`)": means[0],
        (
            "the model is in training mode while it is evaluated: batch normalisation then uses the batch's own"
            " statistics, and spoils the running ones; `model.eval()` comes first"
        ): (sum(training) / lengths.sum()),
        (
            "the means of the ranks are averaged: a rank with few images then weighs as much as one with many; add"
            " up the sums and the numbers of images, then divide"
        ): means.mean(axis=0),
        "the means of the batches are averaged: a short last batch then weighs as much as a full one": numpy.mean(
            batches, axis=0
        ),
        "the ranks' means are added up, not averaged": means.sum(axis=0),
        "the evaluator has a copy of the model, as it was before the training": (
            _sums(untrained(enlarge(everything.images)), everything.labels) / lengths.sum()
        ),
        "these are of the training images: the evaluator needs `test_loader`": of_training,
        "these are of rank 0's training images: the evaluator needs `test_loader`": of_shard,
    }


def _model(case, trained=TRAINED):
    model = network(seed_of(case), NormalizingNetwork)
    with torch.no_grad():
        model[-1].weight *= trained
    return model


def _sums(outputs, labels):
    """Summed loss and number of right answers."""
    loss = F.cross_entropy(outputs, labels, reduction="sum")
    return numpy.array([loss.item(), (outputs.argmax(dim=1) == labels).sum().item()])
