"""The oracle of the evaluation's probe, called like those in grader.oracles.pytorch_oracles."""

import numpy

from grader.units.multi_node.probes.probe_multi_node_pytorch import TRAINED, sums


def evaluation(rank, ranks, case):
    """Return {"right": [loss, accuracy] of the whole test set after the first epoch; "second": the same after the
    second epoch; "own": the values of each rank's part after the first epoch; sentence on a misconception: its
    values after the first epoch}."""
    lengths = numpy.array(case["lengths"])[:, None]
    once, twice = _sums(case, TRAINED), _sums(case, TRAINED**2)
    means = once / numpy.maximum(lengths, 1)
    return {
        "right": once.sum(axis=0) / lengths.sum(),
        "second": twice.sum(axis=0) / lengths.sum(),
        "own": means,
        (
            "the ranks' means are averaged, so a rank with few images weighs as much as one with many: add up the"
            " sums and the numbers of images, then divide"
        ): means.mean(axis=0),
        "the ranks' means are summed, not averaged": means.sum(axis=0),
        "the sums are not divided by the number of images of all ranks": once.sum(axis=0),
        "the sums of all ranks are divided by this rank's number of images: sum the numbers of images, too": (
            once.sum(axis=0) / max(lengths[0, 0], 1)
        ),
        "the sums are divided by the number of ranks, not by the number of images": once.mean(axis=0),
    }


def _sums(case, trained):
    """Return the summed loss and the number of right answers of each rank's part, as (ranks, 2)."""
    return numpy.array([sums(case, trained, rank) for rank in range(len(case["lengths"]))])
