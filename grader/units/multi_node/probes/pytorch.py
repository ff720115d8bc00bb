"""The probe of the gap that only this unit's PyTorch script has, and what Chainer's evaluators must have in common with it."""

import torch
from pytorch_pfn_extras.training.trigger import IntervalTrigger, get_trigger

from grader.box.rank import Wrong
from grader.probes.pytorch import NormalizingNetwork, Place, evaluate, examples, flat, part
from grader.probes.script import Enough

TRAINED = 0.5  # what a weight is multiplied by before the evaluation, as if there had been a training


def evaluator(rank, ranks, source, case):
    """What the evaluator reports on this rank, where the ranks have unequal parts of the test set; how many images go through the model;
    whether that is in training mode afterwards; which of its numbers have changed ("moved"); the forward passes of this evaluation and of another
    one ("passes"); and whether autograd notes what comes after them ("grad")."""
    found, test_set = {}, examples(sum(case["lengths"]), case["seed"])

    def see(names):
        with torch.no_grad():
            names.model[-1].weight *= TRAINED
        called_once_an_epoch(names.evaluator, get_trigger, IntervalTrigger)
        parts, passes = {"parameters": names.model.parameters, "running statistics of batch normalisation": names.model.buffers}, []
        start = {what: flat(part()) for what, part in parts.items()}
        for epoch in range(2):
            names.model.passes.clear()
            of_epoch = evaluate(names.evaluator, names.manager, case["lengths"][rank])
            found.setdefault("found", of_epoch)
            found.setdefault("images", sum(images for images, _ in names.model.passes))
            passes.append(len(names.model.passes))
        found["passes"], found["counts seconds"], found["grad"] = passes, hasattr(names.evaluator, "seconds"), torch.is_grad_enabled()
        found["training"] = all(module.training for module in names.model.modules())
        found["moved"] = [what for what, part in parts.items() if (flat(part()) != start[what]).any()]
        raise Enough

    train_set, lengths = training_set(ranks)
    sharing = "shard lengths", lambda: (part(place.train_set, lengths, rank), lengths)
    place = Place(rank, ranks, source, case, train_set, test_set, case["lengths"], kind=NormalizingNetwork, scatter=sharing)
    place.run(see)
    return found


def called_once_an_epoch(evaluator, get_trigger, interval):
    """Raises Wrong if `evaluator` has another interval, as `extend` takes it. get_trigger, interval: those of its track, a function and a class."""
    trigger = get_trigger(getattr(evaluator, "trigger", (1, "iteration")))
    if isinstance(trigger, interval) and (trigger.period, trigger.unit) != (1, "epoch"):
        raise Wrong(f"`evaluator` is called every {trigger.period:g} {trigger.unit}(s): the table needs it after each epoch, its trigger is (1, 'epoch')")


def training_set(ranks):
    """(the training set of all ranks, the lengths of their shards)."""
    return examples(2 * ranks, 1), [2] * ranks
