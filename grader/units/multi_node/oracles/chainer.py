"""The oracle of the evaluator's probe, called like those in grader.oracles.chainer."""

import handson.chainer  # noqa: F401 (before chainer: lets it run on today's NumPy)
import numpy
from chainer.dataset import concat_examples

from grader.probes.chainer import Double, network, pictures, seed_of
from grader.units.multi_node.probes.chainer import TRAINED, training_set


def evaluation(rank, ranks, case):
    """{"right": [loss, accuracy] on each rank (ranks, 2), the means over all images; sentence on a misconception: the values that it
    leads to}."""
    model, lengths, data = network(seed_of(case)), case["lengths"], list(pictures(sum(case["lengths"]), case["seed"]))
    model.predictor[0].W.array *= TRAINED

    def mean(part, model=model, convert=Double()):
        if not part:
            return numpy.zeros(2)
        loss = model(*convert(part, None))
        return numpy.array([float(loss.array), float(model.accuracy.array)])

    ends = numpy.cumsum(lengths)
    parts = [data[end - length : end] for end, length in zip(ends, lengths)]
    own = numpy.stack([mean(part) for part in parts])
    batches = [[mean(part[at : at + case["batchsize"]]) for at in range(0, len(part) or 1, case["batchsize"])] for part in parts]
    size = len(lengths)
    nodes = [number // case["ranks_per_node"] for number in range(size)]
    of_nodes = [mean(sum((part for part, other in zip(parts, nodes) if other == node), [])) for node in nodes]
    return {
        "right": numpy.stack([mean(data)] * size),
        "every rank has the result of its own part of the test set: nothing puts the parts together": own,
        "the parts are put together within each node alone: create_multi_node_evaluator needs `comm`, which has all ranks": numpy.stack(of_nodes),
        "it is the mean of the ranks' means, in which an image on a rank with fewer of them weighs more: keep the `evaluator` "
        "that the script has made, and make that a multi-node one": numpy.stack([own.mean(axis=0)] * size),
        "it is the mean of the batches' means, in which an image in a small last batch weighs more: keep the `evaluator` that "
        "the script has made, and make that a multi-node one": numpy.stack([numpy.mean([numpy.mean(one, axis=0) for one in batches], axis=0)] * size),
        "the evaluator has a copy of the model, as it was before the training": numpy.stack([mean(data, network(seed_of(case)))] * size),
        "these are of the training images: the evaluator needs `test_iterator`": numpy.stack([mean(list(training_set(size)[0]))] * size),
        "the test images do not go through `convert`": numpy.stack([mean(data, convert=concat_examples)] * size),
        "the ranks' results are added up, not averaged": numpy.stack([own.sum(axis=0)] * size),
    }
