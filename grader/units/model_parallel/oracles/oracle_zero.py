"""The reference for zero.py, simulated for all ranks in one process, and the results of typical mistakes."""

import torch

from grader.probes.pytorch_scripts import flat, network, seed_of
from grader.units.model_parallel.probes.probe_zero import rows


def shard(rank, ranks, case):
    """Return {"rows": the shard of each rank}."""
    whole, size = torch.from_numpy(flat(network(seed_of(case)).parameters())), case["ranks"]
    length = -(-len(whole) // size)
    return {"rows": torch.cat([whole, whole.new_zeros(size * length - len(whole))]).view(size, length).numpy()}


def reduce_scatter(rank, ranks, case):
    """Return {"right" or the sentence of a mistake: [ranks][steps] gradients}."""
    size = case["ranks"]
    everybodys = [[rows(case, other, step + 1).double() for other in range(size)] for step in range(case["steps"])]

    def of_all(rule):
        return [[flat([rule(of_step, rank)]) for of_step in everybodys] for rank in range(size)]

    return {
        "right": of_all(lambda everybodys, rank: sum(everybodys)[rank] / size),
        "`mean` is the sum of the gradients: divide by the number of ranks": of_all(
            lambda everybodys, rank: sum(everybodys)[rank]
        ),
        "`mean` is divided by the number of ranks twice: divide once": of_all(
            lambda everybodys, rank: sum(everybodys)[rank] / size**2
        ),
        "`mean` contains only the rank's own gradients: sum over all ranks with dist.reduce_scatter": of_all(
            lambda everybodys, rank: everybodys[rank][rank]
        ),
        "`mean` contains only the rank's own share of the mean: sum over all ranks with dist.reduce_scatter": of_all(
            lambda everybodys, rank: everybodys[rank][rank] / size
        ),
        "`mean` is the gradient of rank 0's shard on all ranks: rank r needs row r": of_all(
            lambda everybodys, rank: sum(everybodys)[0] / size
        ),
    }


def all_gather(rank, ranks, case):
    """Return {"right" or the sentence of a mistake: [ranks][steps] values}."""
    size = case["ranks"]
    begin, right, alone, of_rank_0 = rows(case, 0).double(), [], [[] for _ in range(size)], []
    owned, mine = begin.clone(), [begin.clone() for _ in range(size)]
    for step in range(case["steps"]):
        for rank in range(size):
            more = rows(case, rank, step + 1)[rank]
            owned[rank] += more
            mine[rank][rank] += more
            alone[rank].append(flat([mine[rank]]))
        right.append(flat([owned]))
        of_rank_0.append(flat([owned[0].expand_as(owned)]))
    return {
        "right": [right] * size,
        "`values` has only the rank's own shard updated, so the ranks' networks differ: all-gather the shards": alone,
        "`values` has the shard of rank 0 in all rows: gather the shard of rank r into row r": [of_rank_0] * size,
    }
