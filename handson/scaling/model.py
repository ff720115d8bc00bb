"""The model of a data-parallel step, fitted to measured runs, and its predictions for more workers, with an uncertainty
band: step = slowest of N workers + overhead + communication that computation does not hide.

`fit` draws the parameters DRAWS times, each time from resampled steps (a bootstrap), so each prediction is a
distribution.
"""

from dataclasses import dataclass, replace

import numpy

from handson.cluster import network as measuring
from handson.scaling import message_times, slowest_worker
from handson.scaling.measured_runs import RunsError, check

DRAWS = 300
KEPT = 500  # steps of each run that are resampled; more steps do not change the result
WITHIN = message_times.Cluster.within  # between two processes of a node, if it was not measured
# the band's share of the draws: large, because a bootstrap of short runs is too narrow; the band contained the truth in
# 95 of 100 synthetic cases
BAND = (0.0025, 0.9975)


@dataclass(frozen=True)
class Plan:
    """The conditions of a prediction. With None, a condition is the same as in the runs."""

    rate: float | None = None  # bytes/s of each node's network; None if it is not limited
    per_node: int = 1
    algorithm: str = "ring"
    dtype: str = "float32"
    double_buffering: bool = False
    batchsize: int | None = None  # per worker
    latency: float | None = None  # seconds of a message between nodes


@dataclass
class Model:
    """The parameters, with one value per draw."""

    compute: list  # for each draw, the resampled seconds of one worker's steps
    overhead: numpy.ndarray  # additional seconds per step with two or more workers
    latency: numpy.ndarray  # seconds of a message of an all-reduce
    share: numpy.ndarray  # the share of a network's rate that an all-reduce reaches
    parameters: int
    batchsize: int
    fixed: float  # share of a step's computation that does not depend on the batch size
    overlap: bool
    evaluation: float  # seconds of one worker after each epoch
    images: int  # per epoch
    told_apart: bool  # whether the runs distinguish overhead from latency
    crossed: bool  # whether messages of these runs, or of a measured network, passed between nodes

    def intervals(self):
        """Return name -> (median, low, high) of each parameter: seconds, or a share."""
        drawn = {
            "step of one worker": numpy.array([one.mean() for one in self.compute]),
            "overhead of a step": self.overhead,
            "latency of a message": self.latency,
            "share of the network's rate": self.share,
        }
        return {
            name: (float(numpy.median(values)), *map(float, numpy.quantile(values, BAND)))
            for name, values in drawn.items()
        }


@dataclass
class Prediction:
    """The prediction for one number of workers; arrays have one value per draw."""

    workers: int
    nodes: int
    compute: numpy.ndarray  # mean seconds of a worker's step
    waiting: numpy.ndarray  # seconds for the slowest worker
    overhead: numpy.ndarray
    communication: numpy.ndarray  # seconds that computation does not hide
    evaluation: numpy.ndarray  # seconds of an epoch's evaluation, divided among its steps
    batch: int  # images of all workers in a step

    @property
    def step(self):
        """The seconds of a training step."""
        return self.compute + self.waiting + self.overhead + self.communication

    @property
    def throughput(self):
        """The throughput in images/s, with evaluation."""
        return self.batch / (self.step + self.evaluation)


def fit(runs, networks=(), parameters=None, seed=0):
    """Fit a Model to measured Runs, and to MeasuredNetworks if there are any. parameters: the number of the network's
    parameters, if no run records it.

    The computation comes from the runs with one worker; overhead and latency come from the additional time of runs with
    several workers. Runs with a single number of workers cannot distinguish overhead from latency, but a network
    measured with more than two ranks can. Without such a measurement, each draw divides them at random, and the band
    shows the effect for many workers. Raises RunsError.
    """
    single, several = check(runs)
    said = next((run.parameters for run in runs if run.parameters), None)
    if not (said or parameters):
        raise RunsError("the runs do not contain the number of parameters: repeat them, or give --parameters")
    if said and parameters and said != parameters:
        raise RunsError(
            f"these runs record {said:,} parameters: leave out --parameters, which is only for runs that do not record"
            " them"
        )
    random = numpy.random.default_rng(seed)
    base = max(single, key=lambda run: len(run.steps))
    fixed = _fixed_share(single, base.batchsize)
    same = [run for run in single if run.batchsize == base.batchsize]
    model = Model(
        [],
        numpy.zeros(DRAWS),
        numpy.zeros(DRAWS),
        numpy.ones(DRAWS),
        said or parameters,
        base.batchsize,
        fixed,
        several[0].overlap,
        base.evaluation,
        base.images,
        True,
        any(run.workers > run.per_node for run in several) or any(one.nodes > 1 for one in networks),
    )
    rounds = [_rounds(run, model) for run in several]
    several_ranks = [one for one in networks if one.ranks > 2]
    model.told_apart = bool(several_ranks) or len(set(rounds)) > 1
    for draw in range(DRAWS):
        model.compute.append(_drawn(same[random.integers(len(same))], random))
        if networks:
            model.latency[draw], model.share[draw] = _of_network(
                (several_ranks or networks)[random.integers(len(several_ranks or networks))], random
            )
        chosen = (
            random.integers(0, len(several), len(several))
            if model.told_apart and len(several) > 3
            else range(len(several))
        )
        rests = numpy.array(
            [_drawn(several[at], random).mean() - _without_rest(several[at], model, draw) for at in chosen]
        )
        of_rounds = numpy.array([rounds[at] for at in chosen], float)
        if len(set(of_rounds.tolist())) > 1:
            model.latency[draw], model.overhead[draw] = _line(of_rounds, rests)
        elif several_ranks:
            model.overhead[draw] = (rests - model.latency[draw] * of_rounds).mean()
        else:
            latency = max(random.uniform() * rests.mean(), 0) / of_rounds[0]
            model.latency[draw] = min(latency, model.latency[draw]) if networks else latency
            model.overhead[draw] = rests.mean() - model.latency[draw] * of_rounds[0]
    return model


def _drawn(run, random):
    """Return resampled seconds of a run's steps."""
    return slowest_worker.resample(run.steps[-KEPT:], random)


def _fixed_share(single, batchsize):
    """Return the share of a single-worker step that does not depend on the batch, from runs with several batch sizes; 0
    if there is only one."""
    sizes = [run.batchsize for run in single]
    if len(set(sizes)) < 2:
        return 0.0
    slope, constant = numpy.polyfit(sizes, [run.step for run in single], 1)
    return float(numpy.clip(constant / (constant + slope * batchsize), 0, 1))


def _rounds(run, model):
    """Return the number of consecutive messages in the all-reduces of a step."""
    sizes = message_times.buckets(model.parameters * message_times.DTYPES[run.dtype])
    return len(sizes) * 2 * (run.workers - 1)


def _without_rest(run, model, draw):
    """Return the seconds of a step of `run` from its known parts: the slowest worker, and the bytes on a network of
    known rate."""
    plan = Plan(
        message_times.rate(run.network) if run.network else None,
        run.per_node,
        "ring",
        run.dtype,
        run.double_buffering,
        run.batchsize,
    )
    return float(predict(model, run.workers, plan, draws=[draw], rest=False).step[0])


def _of_network(measured, random):
    """Return (latency, share of the rate) of a MeasuredNetwork, from resampled repeats; the share is 1 if the rate is
    unknown."""
    medians = {size: float(numpy.median(random.choice(times, len(times)))) for size, times in measured.times.items()}
    seconds, carried = measuring.fit(medians)
    latency = seconds / (2 * (measured.ranks - 1))
    if measured.rate == "none":
        return latency, 1.0
    return latency, min(1.0, carried * measuring.all_reduce_volume(measured.ranks) / message_times.rate(measured.rate))


def _line(rounds, rests):
    """Return (seconds per round, seconds independent of the rounds) by least squares; neither is negative if the other
    can explain the residuals."""
    slope, constant = numpy.polyfit(rounds, rests, 1)
    if slope < 0:
        return 0.0, rests.mean()
    if constant < 0:
        return max(0.0, (rounds * rests).sum() / (rounds**2).sum()), 0.0
    return slope, constant


def predict(model, workers, plan=Plan(), draws=None, rest=True):
    """Return the Prediction for a number of workers. draws: indices of the model's draws, all by default; rest: include
    overhead and latency.

    Raises TopologyError if the workers do not fill their nodes.
    """
    draws = range(len(model.compute)) if draws is None else draws
    batchsize = plan.batchsize or model.batchsize
    factor = model.fixed + (1 - model.fixed) * batchsize / model.batchsize
    mean = factor * numpy.array([model.compute[draw].mean() for draw in draws])
    slowest = factor * numpy.array(
        [
            slowest_worker.expected_maximum(model.compute[draw], workers) if workers > 1 else model.compute[draw].mean()
            for draw in draws
        ]
    )
    overhead = (model.overhead[list(draws)] if rest else numpy.zeros(len(mean))) * (workers > 1)
    sizes = message_times.buckets(model.parameters * message_times.DTYPES[plan.dtype])
    hidden = numpy.zeros(len(mean))
    for at, draw in enumerate(draws):
        latency = plan.latency if plan.latency is not None else model.latency[draw]
        within = replace(WITHIN, latency=model.latency[draw])
        between = message_times.Link(latency, plan.rate * model.share[draw]) if plan.rate else within
        cluster = message_times.Cluster(
            *((between, within) if rest else (replace(between, latency=0), replace(within, latency=0))), plan.per_node
        )
        durations = [message_times.all_reduce(size, workers, cluster, plan.algorithm) for size in sizes]
        overlap = model.overlap and len(sizes) > 1
        hidden[at] = message_times.exposed(mean[at], durations, overlap, plan.double_buffering) if workers > 1 else 0
    batch = workers * batchsize
    evaluation = numpy.full(len(mean), model.evaluation / workers / max(1, model.images / batch))
    return Prediction(
        workers, message_times.nodes(workers, plan.per_node), mean, slowest - mean, overhead, hidden, evaluation, batch
    )
