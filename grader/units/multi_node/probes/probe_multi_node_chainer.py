"""The probes of the gaps that only this unit's Chainer script has."""

import chainer
from chainer.training.triggers import IntervalTrigger

from grader.probes.chainer_scripts import GapInScript, dataset, flat, pictures, samples, seed_of
from grader.probes.script import StopScript
from grader.sandbox.rank import StudentMistake
from grader.units.multi_node.probes.probe_multi_node_pytorch import TRAINED, called_once_an_epoch, reported


def scatter(rank, ranks, source, case):
    """Return the samples in this rank's parts of the training and the test set, if only rank 0 has the data. For the
    training set, also return the parts of a second run with the same seed ("again"), and of a run with another seed
    ("other")."""
    tests = {"images": case["test_images"], "seed": case["seed"] + 1}
    place = GapInScript(rank, ranks, source, case, dataset(case["images"], case["seed"]), [1] * ranks, dataset(**tests))

    def samples_of(name, part, own, other, others):
        try:
            return samples(part, own)
        except StudentMistake as wrong:
            try:
                samples(part, other)
            except StudentMistake:
                raise wrong from None
            raise StudentMistake(f"`{name}` has images of the {others} set") from None

    def run(seed):
        found = []

        def see(names):
            for name in ("train_set", "test_set"):
                if not hasattr(names[name], "__len__"):
                    raise StudentMistake(
                        f"`{name}` is {names[name]!r:.60} on this rank: call scatter_dataset on every rank, and keep"
                        " the result"
                    )
            found.append(samples_of("train_set", names.train_set, case, tests, "test"))
            found.append(samples_of("test_set", names.test_set, tests, case, "training"))
            raise StopScript

        place.run(see, seed=seed)
        return found

    seed = seed_of(case)
    train, test = run(seed)
    return {"train": train, "test": test, "again": run(seed)[0], "other": run(seed + 1)[0]}


def evaluator(rank, ranks, source, case):
    """Return the loss and the accuracy that the evaluator reports after each of two epochs, on rank 0 ("found"); the
    forward passes of each evaluation ("passes"), whether any of them is in training mode ("training"), and whether they
    change parameters ("moved"). case["lengths"]: the test images of each rank."""
    found = {"found": [], "passes": [], "training": False, "moved": False}

    def see(names):
        called_once_an_epoch(names.evaluator, chainer.training.get_trigger, IntervalTrigger)
        if any(extension.extension is names.evaluator for extension in names.trainer._extensions.values()):
            raise StudentMistake(
                "`evaluator` already extends the trainer, so it would be called twice: leave that to add_reports in"
                " the script's next line"
            )
        given, reporter = names.model.copy(mode="copy"), chainer.Reporter()
        reporter.add_observer("main", names.model)  # Trainer does the same
        for epoch in range(2):
            names.model.copyparams(given)
            names.model.predictor[0].W.array *= TRAINED ** (epoch + 1)
            start = flat(names.model)
            names.model.predictor.passes.clear()
            with reporter.scope(observed := {}):
                names.evaluator(names.trainer)
            # nobody reads what other ranks report
            found["found"].append(reported(observed) if rank == 0 else [0.0, 0.0])
            found["passes"].append(len(names.model.predictor.passes))
            found["training"] |= any(names.model.predictor.passes)
            found["moved"] |= bool((flat(names.model) != start).any())
        found["counts seconds"] = hasattr(names.evaluator, "seconds")
        raise StopScript

    train_set, lengths = training_set(ranks)
    place = GapInScript(
        rank, ranks, source, case, train_set, lengths, pictures(sum(case["lengths"]), case["seed"]), case["lengths"]
    )
    with chainer.using_config("train", True):
        place.run(see)
    return found


def training_set(ranks):
    """Return (the training set of all ranks, the lengths of their parts)."""
    return pictures(2 * ranks, 1), [2] * ranks
