"""The probe of the gap that only this unit's PyTorch script has, and what Chainer's evaluators must have in common with
it."""

import torch
from pytorch_pfn_extras.reporting import Reporter
from pytorch_pfn_extras.training.trigger import IntervalTrigger, get_trigger

from grader.probes.pytorch_scripts import GapInScript, NormalizingNetwork, examples, flat, part
from grader.probes.script import StopScript
from grader.sandbox.rank import StudentMistake

# what a weight is multiplied by before the first evaluation, as if there had been a training; before the second, twice
TRAINED = 0.5


def evaluator(rank, ranks, source, case):
    """What the evaluator reports after each of two epochs, on rank 0 ("found"), where the ranks have unequal parts of
    the test set; how many images go through the model in the first; whether that is in training mode afterwards; which
    of its numbers the evaluations have changed ("moved"); the forward passes of each ("passes"); and whether autograd
    notes what comes after them ("grad")."""
    found, test_set = {"found": [], "passes": [], "moved": []}, examples(sum(case["lengths"]), case["seed"])

    def see(names):
        called_once_an_epoch(names.evaluator, get_trigger, IntervalTrigger)
        parts = {"parameters": names.model.parameters, "running statistics of batch normalisation": names.model.buffers}
        given = {name: value.clone() for name, value in names.model.state_dict().items()}
        for epoch in range(2):
            names.model.load_state_dict(given)
            with torch.no_grad():
                names.model[-1].weight *= TRAINED ** (epoch + 1)
            start = {what: flat(part()) for what, part in parts.items()}
            names.model.passes.clear()
            observed = evaluate(names.evaluator, names.manager, case["lengths"][rank])
            # nobody reads what other ranks report
            found["found"].append(reported(observed) if rank == 0 else [0.0, 0.0])
            found.setdefault("images", sum(images for images, _ in names.model.passes))
            found["passes"].append(len(names.model.passes))
            found["moved"] += [what for what, part in parts.items() if (flat(part()) != start[what]).any()]
        found["counts seconds"], found["grad"] = hasattr(names.evaluator, "seconds"), torch.is_grad_enabled()
        found["training"] = all(module.training for module in names.model.modules())
        raise StopScript

    train_set, lengths = training_set(ranks)
    sharing = "shard lengths", lambda: (part(place.train_set, lengths, rank), lengths)
    place = GapInScript(
        rank, ranks, source, case, train_set, test_set, case["lengths"], kind=NormalizingNetwork, scatter=sharing
    )
    place.run(see)
    return found


def evaluate(evaluator, manager, images):
    """What an evaluator reports, {key: value}. images: the number of this rank's test images. Raises Wrong."""
    reporter = Reporter()
    with reporter, reporter.scope(observed := {}):
        try:
            evaluator(manager)
        except ZeroDivisionError as error:
            what = f"`evaluator` divides by 0 on this rank, which has {images} test images"
            why = (
                "are they there in each epoch anew?"
                if images
                else "add up the ranks' sums and numbers of images before you divide"
            )
            raise StudentMistake(f"{what}: {why}") from error
    return observed


def reported(observed):
    """[loss, accuracy] among what an evaluator reports, {key: value}. Raises StudentMistake if one of them isn't there,
    or twice."""
    found = {
        name: [float(value) for key, value in observed.items() if key.endswith(name)] for name in ("loss", "accuracy")
    }
    for name, values in found.items():
        if len(values) != 1:
            raise StudentMistake(
                f"`evaluator` should report one {name}; it reports {', '.join(map(str, observed)) or 'nothing'}"
            )
    return found["loss"] + found["accuracy"]


def called_once_an_epoch(evaluator, get_trigger, interval):
    """Raises StudentMistake if `evaluator` can't be called, or has another interval, as `extend` takes it. get_trigger,
    interval: those of its track, a function and a class."""
    if not callable(evaluator):
        raise StudentMistake(f"`evaluator` is a {type(evaluator).__name__}, which is no evaluator")
    trigger = get_trigger(getattr(evaluator, "trigger", (1, "iteration")))
    if isinstance(trigger, interval) and (trigger.period, trigger.unit) != (1, "epoch"):
        raise StudentMistake(
            f"`evaluator` is called every {trigger.period:g} {trigger.unit}(s): the table needs it after each epoch,"
            " its trigger is (1, 'epoch')"
        )


def training_set(ranks):
    """(the training set of all ranks, the lengths of their shards)."""
    return examples(2 * ranks, 1), [2] * ranks
