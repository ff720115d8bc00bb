"""The reference for the operators of products_sequence.py, computed in one process, and the results of typical
mistakes."""

import torch

from grader.units.model_parallel.probes.probe_products_sequence import numbers


def operators(rank, ranks, case):
    """Return for each rank: operator -> direction -> {"right" or the sentence of a mistake: the numbers}."""
    groups = case.get("groups") or [list(range(case["ranks"]))]
    return [_of_rank(one, next(group for group in groups if one in group), case) for one in range(case["ranks"])]


def _of_rank(rank, group, case):
    size, place = len(group), group.index(rank)

    def gathered(what):
        return torch.cat([numbers(case, one, what, size) for one in group], dim=1)

    def sums(what):
        summed = sum(numbers(case, one, what) for one in group)
        alone = numbers(case, rank, what)
        return {
            "right": summed.chunk(size, dim=1)[place],
            "no other rank's terms are added: reduce_scatter adds them": alone.chunk(size, dim=1)[place],
            "the sum is divided by the number of ranks: it should be the sum, not the mean": (
                summed.chunk(size, dim=1)[place] / size
            ),
            "the sum is that of another rank's tokens": summed.chunk(size, dim=1)[place - 1],
        }

    found = {
        "Gather": {"forward": {"right": gathered(0)}, "backward": sums(1)},
        "Scatter": {"forward": sums(2), "backward": {"right": gathered(3)}},
    }
    return {
        name: {
            direction: {sentence: one.numpy() for sentence, one in values.items()} for direction, values in of.items()
        }
        for name, of in found.items()
    }
