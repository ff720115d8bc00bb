"""Local SGD and block momentum by their definition, simulated for all ranks in one process; and the same with typical
mistakes."""

import numpy
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from grader.probes.pytorch_scripts import flat, network
from grader.units.communication.probes.probe_local_sgd import step

# what each rank takes for the mean of `all` ranks' parameters; its own are `mine`
MEANS = {
    "right": lambda mine, all: sum(all) / len(all),
    "the parameters are summed, not averaged: divide by the number of ranks": lambda mine, all: sum(all),
    "the mean is taken twice: divide by the number of ranks once": lambda mine, all: sum(all) / len(all) ** 2,
    "each rank goes on with its own parameters: dist.all_reduce adds those of the others": lambda mine, all: mine,
    "each rank has only its own part of the mean: dist.all_reduce adds those of the others": lambda mine, all: (
        mine / len(all)
    ),
}
MOMENTA = {  # (start, velocity) of the next block; m: the momentum, v: the velocity so far
    "right": lambda mean, start, v, m: (start + m * v + mean - start, m * v + mean - start),
    "block.momentum changes nothing: the velocity of the block before is lost, or not used": (
        lambda mean, start, v, m: (mean, 0)
    ),
    "the step of the block counts twice: the velocity is added to block.start, not to `mean`": (
        lambda mean, start, v, m: (mean + m * v + mean - start, m * v + mean - start)
    ),
    "the step of the block is damped: only the velocity before is multiplied": lambda mean, start, v, m: (
        start + m * v + (1 - m) * (mean - start),
        m * v + (1 - m) * (mean - start),
    ),
    "the step has the wrong sign: it is `mean` minus block.start": lambda mean, start, v, m: (
        2 * start + m * v - mean,
        m * v + start - mean,
    ),
    "block.start stays where it was: it must move by the velocity": lambda mean, start, v, m: (
        start,
        m * v + mean - start,
    ),
    "that is Nesterov's momentum; here the velocity itself is added": lambda mean, start, v, m: (
        mean + m * (m * v + mean - start),
        m * v + mean - start,
    ),
}


def blocks(rank, ranks, case):
    """{"right" or the sentence of a mistake: the parameters after each block, [ranks][blocks][numbers]; "start": those
    of all ranks before}."""
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
