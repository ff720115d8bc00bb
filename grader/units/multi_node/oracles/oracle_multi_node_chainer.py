"""The oracle of the evaluator's probe, called like those in grader.oracles.chainer_oracles."""

import handson.chainer  # noqa: F401 (before chainer: lets it run on today's NumPy)

import numpy
from chainer.dataset import concat_examples

from grader.probes.chainer_scripts import Double, network, pictures, seed_of
from grader.units.multi_node.probes.probe_multi_node_chainer import TRAINED, training_set


def evaluation(rank, ranks, case):
    """Return {"right": [loss, accuracy] on rank 0 after the first epoch, as means over all images; "second": the
    same after the second epoch; sentence on a misconception: its values after the first epoch}."""
    model, lengths, data = _model(case), case["lengths"], list(pictures(sum(case["lengths"]), case["seed"]))

    def mean(part, model=model, convert=Double()):
        if not part:
            return numpy.zeros(2)
        loss = model(*convert(part, None))
        return numpy.array([float(loss.array), float(model.accuracy.array)])

    ends = numpy.cumsum(lengths)
    parts = [data[end - length : end] for end, length in zip(ends, lengths)]
    own = numpy.stack([mean(part) for part in parts])
    batches = [
        [mean(part[at : at + case["batchsize"]]) for at in range(0, len(part) or 1, case["batchsize"])]
        for part in parts
    ]
    return {
        "right": mean(data),
        "second": mean(data, _model(case, TRAINED**2)),
        "rank 0 has the result of its own part of the test set: nothing combines the parts": own[0],
        (
            "the results are combined only within each node: pass `comm`, which has all ranks, to"
            " create_multi_node_evaluator"
        ): mean(sum(parts[: case["ranks_per_node"]], [])),
        (
            "the ranks' means are averaged, so an image on a rank with fewer images weighs more: keep the script's"
            " `evaluator`, and make it a multi-node evaluator"
        ): own.mean(axis=0),
        (
            "the batches' means are averaged, so an image in a small last batch weighs more: keep the script's"
            " `evaluator`, and make it a multi-node evaluator"
        ): numpy.mean([numpy.mean(one, axis=0) for one in batches], axis=0),
        "`evaluator` has a copy of the model from before the training": mean(data, _model(case, 1)),
        "`evaluator` evaluates the training images: pass `test_iterator`": mean(list(training_set(len(lengths))[0])),
        "the test images do not go through `convert`": mean(data, convert=concat_examples),
        "the ranks' results are summed, not averaged": own.sum(axis=0),
    }


def _model(case, trained=TRAINED):
    model = network(seed_of(case))
    model.predictor[0].W.array *= trained
    return model
