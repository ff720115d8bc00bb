"""Training with big batches and with learning rates that follow a plan, in runs that are short enough to be repeated; a
notebook calls it.

N workers with batch B do the same as one worker with batch N x B (except in batch normalisation). So one worker shows
what big batches do to the accuracy. Pictures are digits of 16 pixels, so that a run takes a second.
"""

import itertools
from dataclasses import dataclass

import numpy
import torch
import torch.nn.functional as F

from handson.notebook import timing
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.training import data

SIZE = 16  # pixels
POINTS = 14  # evaluations in a run, at most


@dataclass
class Plan:
    """batchsize: images in an update, of all workers together; rates: the learning rate of each update."""

    batchsize: int
    rates: list


@dataclass
class Curve:
    """The result of a plan: the updates and epochs after which it was evaluated, and the test errors (0 to 1) there,
    (seeds, evaluations)."""

    plan: Plan
    updates: numpy.ndarray
    epochs: numpy.ndarray
    errors: numpy.ndarray

    @property
    def mean(self):
        """The test error, mean over the seeds."""
        return self.errors.mean(axis=0)


def run(plans, seeds=4):
    """Train each Plan of the dictionary `plans` with as many seeds, on two GPUs: {name: Curve}. Raises
    timing.MeasurementFailed."""
    plans = {name: Plan(plan.batchsize, [float(rate) for rate in plan.rates]) for name, plan in plans.items()}
    of_ranks = timing.on_gpus(_run, list(plans.values()), seeds, workers=2)
    curves = {}
    for number, (name, plan) in enumerate(plans.items()):
        errors = [errors for of_rank in of_ranks for errors in of_rank[number]]
        updates = evaluated(len(plan.rates))
        epochs = updates / -(-_images() // plan.batchsize)
        curves[name] = Curve(plan, updates, epochs, numpy.array(errors))
    return curves


def evaluated(updates):
    """After which updates of a run there is an evaluation: more often in the beginning, where errors fall fast."""
    return numpy.unique(numpy.geomspace(max(1, updates / 40), updates, POINTS).round().astype(int))


def _images():
    return len(data.load_arrays("digits")[0])


def _run(device, rank, workers, plans, seeds):
    sets = [(data.enlarge(part.images.to(device), SIZE), part.labels.to(device)) for part in data.load("digits")]
    mine = range(rank, seeds, workers)
    updates, made = len(mine) * sum(len(plan.rates) for plan in plans), itertools.count(1)
    return [[_train(*sets, plan, seed, lambda: timing.done(next(made) / updates)) for seed in mine] for plan in plans]


def _train(train_set, test_set, plan, seed, went_on):
    """The test errors of one run. went_on() is called after each update."""
    torch.manual_seed(seed)
    model = ConvNet().to(train_set[0].device)
    optimizer = torch.optim.SGD(model.parameters(), lr=plan.rates[0], momentum=0.9)
    sampler = EpochBatches([len(train_set[1])], 0, plan.batchsize, seed)
    batches, errors, moments = timing.epoch_after_epoch(sampler, sampler), [], set(evaluated(len(plan.rates)).tolist())
    for update, rate in enumerate(plan.rates, start=1):
        chosen = next(batches)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        F.cross_entropy(model(train_set[0][chosen]), train_set[1][chosen]).backward()
        optimizer.step()
        went_on()
        if update in moments:
            errors.append(_error(model, *test_set))
    return errors


def _error(model, images, labels):
    model.eval()
    with torch.no_grad():
        error = (model(images).argmax(dim=1) != labels).float().mean().item()
    model.train()
    return error
