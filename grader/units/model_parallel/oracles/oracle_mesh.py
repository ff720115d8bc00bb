"""The reference for mesh.py: the gradients of all ranks with the same part of the model, computed in one process."""

import numpy

from grader.units.model_parallel.probes.probe_mesh import own_gradients, places


def replica(rank, ranks, case):
    """Return for each rank: its `parameters`, its `own` gradients, and the means of the gradients over the ranks
    with the `same_part` and over the ranks with the `same_images`."""
    of_ranks = range(case["ranks"])
    found = [own_gradients(case, rank) for rank in of_ranks]

    def means(which):
        return [
            numpy.mean(
                [found[other][1] for other in of_ranks if places(other, case)[which] == places(rank, case)[which]],
                axis=0,
            )
            for rank in of_ranks
        ]

    return {
        "parameters": [one for one, _ in found],
        "own": [one for _, one in found],
        "same_part": means(1),
        "same_images": means(0),
    }
