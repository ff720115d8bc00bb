"""What zero.py should give on a rank, simulated for all ranks in one process; and the same with typical mistakes."""

import torch

from grader.probes.pytorch_scripts import flat, network, seed_of
from grader.units.model_parallel.probes.probe_zero import rows


def shard(rank, ranks, case):
    """{"rows": the shard of each rank}."""
    whole, size = torch.from_numpy(flat(network(seed_of(case)).parameters())), case["ranks"]
    length = -(-len(whole) // size)
    return {"rows": torch.cat([whole, whole.new_zeros(size * length - len(whole))]).view(size, length).numpy()}


def reduce_scatter(rank, ranks, case):
    """{"right" or the sentence of a mistake: [ranks][steps] gradients}."""
    size = case["ranks"]
    everybodys = [[rows(case, other, step + 1).double() for other in range(size)] for step in range(case["steps"])]

    def of_all(rule):
        return [[flat([rule(of_step, rank)]) for of_step in everybodys] for rank in range(size)]

    return {
        "right": of_all(lambda everybodys, rank: sum(everybodys)[rank] / size),
        "the gradients are summed, not averaged: divide by the number of ranks": of_all(
            lambda everybodys, rank: sum(everybodys)[rank]
        ),
        "the mean is taken twice: divide by the number of ranks once": of_all(
            lambda everybodys, rank: sum(everybodys)[rank] / size**2
        ),
        "each rank has only its own gradients: dist.reduce_scatter adds those of the others": of_all(
            lambda everybodys, rank: everybodys[rank][rank]
        ),
        "each rank has only its own part of the mean: dist.reduce_scatter adds those of the others": of_all(
            lambda everybodys, rank: everybodys[rank][rank] / size
        ),
        "all ranks have the gradient of rank 0's shard: row r belongs to rank r": of_all(
            lambda everybodys, rank: sum(everybodys)[0] / size
        ),
    }


def all_gather(rank, ranks, case):
    """{"right" or the sentence of a mistake: [ranks][steps] values}."""
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
        "each rank has updated only its own shard, so the ranks' networks differ: gather the shards of all": alone,
        "all rows have become the shard of rank 0": [of_rank_0] * size,
    }
