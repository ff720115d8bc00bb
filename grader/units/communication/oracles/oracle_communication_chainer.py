"""The right results of the Chainer track's half_and_late.py: means of the given gradients, and double buffering."""

import numpy

from grader.units.communication.probes.probe_communication_chainer import Vectors, gradients


def half(rank, ranks, case):
    """Return {"mean": the mean of the ranks' gradients, "own": [the gradients of each rank]}."""
    own = numpy.stack([gradients(case, number) for number in range(case["ranks"])])
    return {"mean": own.mean(axis=0), "own": own}


def late(rank, ranks, case):
    """Return {"right" or the sentence of a mistake: the parameters after each update (updates, numbers), or those of
    each rank (ranks, ...)}.

    ChainerMN's first update only copies the parameters of rank 0 to all ranks.
    """
    own = numpy.stack(
        [[gradients(case, number, update) for update in range(case["updates"])] for number in range(case["ranks"])]
    )
    starts = numpy.stack(
        [Vectors(case["lengths"], case["seed"] + number).flat().astype(float) for number in range(case["ranks"])]
    )
    nothing, means = numpy.zeros_like(own[0][:1]), own.mean(axis=0)

    def parameters(used, start=starts[0]):
        return start - case["lr"] * numpy.cumsum(used, axis=0)

    late = numpy.concatenate([nothing, nothing, means[1:]])[: case["updates"]]
    return {
        "right": parameters(late),
        "each update uses its own mean: pass double_buffering=True to use the mean of the previous step": parameters(
            numpy.concatenate([nothing, means[1:]])
        ),
        (
            "each rank updates with its own gradients: assign the result of create_multi_node_optimizer to `optimizer`"
        ): numpy.stack([parameters(own[number], starts[number]) for number in range(case["ranks"])]),
    }
