"""Local SGD and block momentum, simulated for all ranks in one process, also with typical mistakes."""

import numpy
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from grader.probes.pytorch_scripts import flat, network
from grader.units.communication.probes.probe_local_sgd import step

# the mean of `all` ranks' parameters that each rank computes; its own parameters are `mine`
MEANS = {
    "right": lambda mine, all: sum(all) / len(all),
    "`mean` is the sum of the parameters: divide by the number of ranks": lambda mine, all: sum(all),
    "`mean` is divided by the number of ranks twice: divide once": lambda mine, all: sum(all) / len(all) ** 2,
    "`mean` has only the rank's own parameters: add those of the other ranks with dist.all_reduce": lambda mine, all: (
        mine
    ),
    "`mean` has only the rank's own part of the mean: add those of the other ranks with dist.all_reduce": (
        lambda mine, all: mine / len(all)
    ),
}
MOMENTA = {  # (start, velocity) of the next block; m: the momentum, v: the velocity so far
    "right": lambda mean, start, v, m: (start + m * v + mean - start, m * v + mean - start),
    "block.momentum has no effect: add block.momentum times the old block.velocity to the step": (
        lambda mean, start, v, m: (mean, 0)
    ),
    "block.start contains the step of the block twice: add the velocity to block.start, not to `mean`": (
        lambda mean, start, v, m: (mean + m * v + mean - start, m * v + mean - start)
    ),
    "block.velocity contains only a part of the step: multiply only the old velocity by block.momentum": (
        lambda mean, start, v, m: (start + m * v + (1 - m) * (mean - start), m * v + (1 - m) * (mean - start))
    ),
    "block.velocity contains the step with the wrong sign: the step is `mean` minus block.start": (
        lambda mean, start, v, m: (2 * start + m * v - mean, m * v + start - mean)
    ),
    "block.start does not change: add the velocity to it": lambda mean, start, v, m: (start, m * v + mean - start),
    "block.start uses Nesterov's momentum: add the velocity itself": lambda mean, start, v, m: (
        mean + m * (m * v + mean - start),
        m * v + mean - start,
    ),
}


def blocks(rank, ranks, case):
    """Return {"right" or the sentence of a mistake: the parameters after each block, [ranks][blocks][numbers]; "start":
    the parameters of all ranks before the first block}."""
    start = {"start": flat(network(case["seed"]).parameters())}
    if case["gap"] == "mean":
        return start | {
            sentence: _simulated(case, lambda mine, all, start, v, rule=rule: (rule(mine, all), 0))
            for sentence, rule in MEANS.items()
        }

    def with_momentum(rule):
        return lambda mine, all, start, v: rule(sum(all) / len(all), start, v, case["momentum"])

    return start | {sentence: _simulated(case, with_momentum(rule)) for sentence, rule in MOMENTA.items()}


def _simulated(case, rule):
    models = [network(case["seed"]) for _ in range(case["ranks"])]
    states = [(parameters_to_vector(model.parameters()).detach(), 0.0) for model in models]
    trace = [[] for _ in models]
    for block in range(case["blocks"]):
        for rank, model in enumerate(models):
            for number in range(case["period"]):
                step(model, case, block * case["period"] + number, rank)
        everybodys = [parameters_to_vector(model.parameters()).detach() for model in models]
        states = [rule(mine, everybodys, *state) for mine, state in zip(everybodys, states)]
        for (start, _), model, found in zip(states, models, trace):
            vector_to_parameters(torch.as_tensor(start).clone(), model.parameters())
            found.append(flat(model.parameters()))
    return numpy.array(trace)
