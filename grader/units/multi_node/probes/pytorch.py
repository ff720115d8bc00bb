"""The probe of the gap that only this unit's PyTorch script has."""

import torch

from grader.probes.pytorch import NormalizingNetwork, Place, evaluate, examples, flat, part
from grader.probes.script import Enough

TRAINED = 0.5  # what a weight is multiplied by before the evaluation, as if there had been a training


def evaluator(rank, ranks, source, case):
    """What the evaluator reports on this rank, where the ranks have unequal parts of the test set; how many images go through the model;
    whether that is in training mode afterwards; and whether its buffers have changed ("moved")."""
    found, test_set = {}, examples(sum(case["lengths"]), case["seed"])

    def see(names):
        with torch.no_grad():
            names.model[-1].weight *= TRAINED
        start = flat(names.model.buffers())
        names.model.passes.clear()
        found["found"] = evaluate(names.evaluator, names.manager, case["lengths"][rank])
        found["images"] = sum(images for images, _ in names.model.passes)
        found["counts seconds"] = hasattr(names.evaluator, "seconds")
        found["training"] = all(module.training for module in names.model.modules())
        found["moved"] = bool((flat(names.model.buffers()) != start).any())
        raise Enough

    train_set, lengths = training_set(ranks)
    sharing = "shard lengths", lambda: (part(place.train_set, lengths, rank), lengths)
    place = Place(rank, ranks, source, case, train_set, test_set, case["lengths"], kind=NormalizingNetwork, scatter=sharing)
    place.run(see)
    return found


def training_set(ranks):
    """(the training set of all ranks, the lengths of their shards)."""
    return examples(2 * ranks, 1), [2] * ranks
