"""Figures of notebook 02_multi_gpu, and its training runs with large batches and with scheduled learning rates, which
are short enough to be repeated.

N workers with batch B compute the same as one worker with batch N x B (except in batch normalisation). So one worker
shows how large batches affect the accuracy. Images are digits of 16 pixels, so that a run takes a second.
"""

import itertools
from dataclasses import dataclass

import numpy
import torch
import torch.nn.functional as F

from handson import compare, figures
from handson.figures import FORESEEN, IDEAL, SERIES, picture
from handson.notebook import measure
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.training import data

SIZE = 16  # pixels
POINTS = 14  # evaluations in a run, at most


@dataclass
class Plan:
    """The batch size and the learning rates of a run. batchsize: images per update, over all workers; rates: the
    learning rate of each update."""

    batchsize: int
    rates: list


@dataclass
class Curve:
    """The result of a plan: the updates and epochs after which it was evaluated, and the test errors (0 to 1), (seeds,
    evaluations)."""

    plan: Plan
    updates: numpy.ndarray
    epochs: numpy.ndarray
    errors: numpy.ndarray

    @property
    def mean(self):
        """Return the test error, averaged over the seeds."""
        return self.errors.mean(axis=0)


def train(plans, seeds=4):
    """Train each Plan of the dictionary `plans` with this many seeds, on two GPUs. Return {name: Curve}. Raises
    measure.MeasurementFailed."""
    plans = {name: Plan(plan.batchsize, [float(rate) for rate in plan.rates]) for name, plan in plans.items()}
    of_ranks = measure.on_gpus(_run, list(plans.values()), seeds, workers=2)
    curves = {}
    for number, (name, plan) in enumerate(plans.items()):
        errors = [errors for of_rank in of_ranks for errors in of_rank[number]]
        updates = evaluated(len(plan.rates))
        epochs = updates / -(-_images() // plan.batchsize)
        curves[name] = Curve(plan, updates, epochs, numpy.array(errors))
    return curves


def evaluated(updates):
    """Return the updates of a run after which it is evaluated: more often at the start, where errors fall fast."""
    return numpy.unique(numpy.geomspace(max(1, updates / 40), updates, POINTS).round().astype(int))


def _images():
    return len(data.load_arrays("digits")[0])


def _run(device, rank, workers, plans, seeds):
    sets = [(data.enlarge(part.images.to(device), SIZE), part.labels.to(device)) for part in data.load("digits")]
    mine = range(rank, seeds, workers)
    updates, made = len(mine) * sum(len(plan.rates) for plan in plans), itertools.count(1)
    return [[_train(*sets, plan, seed, lambda: measure.done(next(made) / updates)) for seed in mine] for plan in plans]


def _train(train_set, test_set, plan, seed, went_on):
    """Return the test errors of one run. went_on() is called after each update."""
    torch.manual_seed(seed)
    model = ConvNet().to(train_set[0].device)
    optimizer = torch.optim.SGD(model.parameters(), lr=plan.rates[0], momentum=0.9)
    sampler = EpochBatches([len(train_set[1])], 0, plan.batchsize, seed)
    batches, errors, moments = measure.epoch_after_epoch(sampler, sampler), [], set(evaluated(len(plan.rates)).tolist())
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


def classes_of_shards(splits):
    """Draw how many images of each class each rank has. splits: name -> list of the labels of each rank's shard."""
    drawing, *all_axes = figures.axes(8.5, 2.6, columns=len(splits), sharey=True)
    for axes, (name, shards) in zip(all_axes, splits.items()):
        counts = [numpy.bincount(numpy.asarray(labels), minlength=10) for labels in shards]
        figures.bars_beside(axes, {f"rank {rank}": of_rank for rank, of_rank in enumerate(counts)})
        axes.set(title=name, xlabel="class", xticks=range(10))
    all_axes[0].set_ylabel("images")
    all_axes[-1].legend(fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return picture(
        drawing,
        f"How many images of each class each rank has when the data is split in these ways: {', '.join(splits)}.",
    )


def speed_up(runs):
    """Draw the speed-up against the number of workers, next to the ideal line and the lecture's values. runs: Results
    of one track, the first with one worker."""
    drawing, axes = figures.axes(5.5, 3.4)
    track, cores = figures.TRACKS[runs[0].track], compare.most_cores(runs)
    workers, ours = [run.workers for run in runs], [run.throughput / runs[0].throughput for run in runs]
    most = max(workers)
    compare.draw_ideal(axes, most, cores)
    axes.plot(workers, ours, **track | {"label": f"your runs, {track['label']}"})
    axes.set(xlabel="workers", ylabel="speed-up", xticks=workers)
    axes.set(xlim=(0.8, most + 0.2), ylim=(0, 1.05 * max(most, *ours)))
    axes.legend(loc="upper left", fontsize="small", edgecolor="none")
    points = ", ".join(f"{number} workers {value:.2f}" for number, value in zip(workers, ours))
    limit = f"; {cores} cores allow {cores}" if cores else ""
    words = f"Speed-up against workers, {track['label']}: {points}; ideal: as many as workers{limit}."
    return picture(drawing, words + compare.note(drawing, runs))


def ranks(steps, count=4):
    """Draw what each rank does during a few steps (measure.Steps): compute, wait for the last rank, communicate."""
    arrivals, leaves, ends = (1000 * moments for moments in _of_all_reduces(steps))
    begin, last = 1000 * steps.began("load"), arrivals.max(axis=1)
    some = range(len(begin) // 2, len(begin) // 2 + count)
    rows = {}
    for rank in range(len(steps.moments)):
        moments = {
            "compute": [(begin[step, rank], arrivals[step, rank]) for step in some]
            + [(leaves[step, rank], ends[step, rank]) for step in some],
            "waiting": [(arrivals[step, rank], last[step]) for step in some],
            "communication": [(last[step], leaves[step, rank]) for step in some],
        }
        first = begin[some[0]].min()
        rows[f"rank {rank}"] = {name: [(a - first, b - a) for a, b in found] for name, found in moments.items()}
    drawing, axes = figures.axes(9, 0.7 + 0.6 * len(rows))
    figures.spans(axes, rows)
    axes.set_xlabel("time [ms]")
    return picture(
        drawing,
        f"What {len(rows)} ranks do during {count} steps: they compute, wait for the last rank, and communicate.",
    )


def _of_all_reduces(steps):
    """Return when each rank entered the all-reduce of each step, left it, and ended the step, in seconds."""
    return steps.began("all-reduce"), steps.ended("all-reduce"), steps.ended("optimize")


def steps_compared(single, several):
    """Draw the parts of a step's time with one worker and with several (measure.Steps of both), next to the ideal
    time."""
    arrivals, leaves, _ = _of_all_reduces(several)
    waiting = (arrivals.max(axis=1, keepdims=True) - arrivals).mean(axis=0)
    communication = (leaves - arrivals.max(axis=1, keepdims=True)).mean(axis=0)
    rows = {"1 worker": {"compute": single.mean()}}
    for rank in range(len(several.moments)):
        compute = several.mean(rank) - waiting[rank] - communication[rank]
        parts = {"compute": compute, "waiting": waiting[rank], "communication": communication[rank]}
        rows[f"{len(several.moments)} workers, rank {rank}"] = parts
    rows = {name: {part: 1000 * seconds for part, seconds in parts.items()} for name, parts in rows.items()}
    drawing, axes = figures.axes(8, 0.9 + 0.5 * len(rows))
    figures.spans(axes, {name: figures.one_after_the_other(parts) for name, parts in rows.items()})
    axes.axvline(rows["1 worker"]["compute"], **IDEAL | {"label": None})
    axes.set(xlabel="mean time of a step [ms]; dashed: ideal", xlim=(0, None))
    words = [
        f"{name}: " + ", ".join(f"{part} {value:.1f} ms" for part, value in parts.items())
        for name, parts in rows.items()
    ]
    return picture(drawing, f"Mean time of a step. {'; '.join(words)}.")


def _draw_errors(axes, curves, what):
    for (name, curve), style in zip(curves.items(), SERIES):
        figures.band(axes, getattr(curve, what), 100 * curve.errors, style | {"markersize": 4}, name)
    axes.set(xlabel=what, ylabel="test error [%]", ylim=(0, 100))


def _final(curves):
    return ", ".join(f"{name}: {100 * curve.mean[-1]:.1f} %" for name, curve in curves.items())


def equal_epochs_and_updates(curves, predicted):
    """Draw the test errors against epochs, and against updates (Curve by name), with bands from the best to the worst
    seed. predicted: the error that the student expects after the fewest epochs, in percent."""
    drawing, left, right = figures.axes(9.5, 3.6, columns=2, sharey=True)
    fewest = min(curve.epochs[-1] for curve in curves.values())
    most = max(curve.updates[-1] for curve in curves.values())
    for axes, what, end, words, side in (
        (left, "epochs", fewest, " equal epochs", "left"),
        (right, "updates", most, "equal updates ", "right"),
    ):
        _draw_errors(axes, curves, what)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.axvline(end, color="0.3", linestyle="--", linewidth=1)
        axes.text(end, 97, words, va="top", ha=side, fontsize="small")
    right.set_ylabel("")
    if predicted is not None:  # a student may skip the prediction
        left.plot(fewest, predicted, **FORESEEN)
    lines = left.get_legend_handles_labels()
    drawing.legend(*lines, fontsize="small", frameon=False, loc="outside upper center", ncols=len(curves) + 1)
    words = "" if predicted is None else f"; predicted {predicted:g} %"
    return picture(drawing, f"Test error against epochs and against updates; at the end {_final(curves)}{words}.")


def rates_and_errors(curves):
    """Draw the learning rate against epochs, and the resulting test error (Curve by name)."""
    drawing, left, right = figures.axes(9.5, 3.6, columns=2)
    for (name, curve), style in zip(curves.items(), SERIES):
        epochs = numpy.arange(len(curve.plan.rates)) * curve.epochs[-1] / curve.updates[-1]
        left.plot(epochs, curve.plan.rates, **style | {"marker": ""}, label=name)
    left.set(xlabel="epochs", ylabel="learning rate", xlim=(0, None), ylim=(0, None))
    _draw_errors(right, curves, "epochs")
    right.set_xlim(0, None)
    right.legend(fontsize="small", edgecolor="none")
    return picture(drawing, f"Learning rate and test error against epochs; at the end {_final(curves)}.")
