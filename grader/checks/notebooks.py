"""The checks of the notebooks' gaps: functions that compute, read a table or plan, and predictions, where any sensible number counts."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.probes.notebooks import inputs

PROBES = "grader.probes.notebooks"


def computes(right, wrong):
    """A judge: the function gives what `right` gives for the same arguments; `wrong`: sentence -> a function with that mistake."""

    def judge(seen, case, expected):
        calls, found = inputs(case), seen[0]["values"]
        for given, value in zip(calls, found):
            due = right(**given)
            if criteria.close(value, due):
                continue
            for sentence, mistake in wrong.items():  # a mistake must explain all calls: one may come out right by chance
                if all(criteria.close(one, mistake(**arguments)) for arguments, one in zip(calls, found)):
                    return sentence
            if any(criteria.close(value, numpy.round(due, digits)) for digits in range(4)):
                return "the number is right, but rounded: return it as it is, and round where it is printed"
            return f"for {_words(given)} it gives {_short(value)}; it should be {_short(due)}"
        return None

    return judge


def sensible(low, high, why):
    """A judge of predictions: between low and high."""

    def judge(seen, case, expected):
        value = seen[0]["value"]
        return None if low <= value <= high else f"`{case['name']}` is {value:g}: {why}"

    return judge


def _words(given):
    return ", ".join(f"{name} = {_short(value)}" for name, value in given.items())


def _short(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_short(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple, numpy.ndarray)) and numpy.ndim(value):
        return "[" + ", ".join(_short(one) for one in value[:6]) + ", ..." * (len(value) > 6) + "]"
    return repr(value) if isinstance(value, str) else f"{float(value):.4g}"


def function(gap, title, right, wrong, hint, points=2):
    """The check of a gap that is the body of a function; its inputs have the gap's name."""
    return Check(gap, f"{PROBES}:value", ({"inputs": gap},), (Criterion(title, points, computes(right, wrong), hint),))


def prediction(gap, low, high, why, hint="Write a number that you have a reason for; it need not come true."):
    """The check of a prediction, an assignment to the gap's name."""
    return Check(gap, f"{PROBES}:prediction", ({"name": gap},), (Criterion("a prediction", 1, sensible(low, high, why), hint),))


START = (
    function(
        "workers",
        "processes on all nodes",
        lambda select, mpiprocs: select * mpiprocs,
        {
            "the processes of one node are counted; the job has `select` nodes": lambda select, mpiprocs: mpiprocs,
            "nodes and processes are added; each of the nodes has `mpiprocs` processes": lambda select, mpiprocs: select + mpiprocs,
            "nodes are counted, not processes": lambda select, mpiprocs: select,
        },
        "`mpiprocs` is the number of processes on each node.",
        points=1,
    ),
    prediction("prediction", 0.1, 4, "two workers may be a little slower than one, or faster, but hardly by that much"),
)


def _throughput(batchsize, step_seconds):
    return batchsize * len(step_seconds) / sum(step_seconds)


def _mean_of_rates(batchsize, step_seconds):
    return sum(batchsize / seconds for seconds in step_seconds) / len(step_seconds)


def _good_enough(rates, share, best=None):
    return [size for size in rates if rates[size] >= share * (best or max(rates.values()))]


def _limit(seconds, part):
    return sum(seconds.values()) / (sum(seconds.values()) - seconds[part])


SINGLE_GPU = (
    function(
        "throughput",
        "images of all steps per second",
        _throughput,
        {
            "the mean of the steps' throughputs: a slow step then counts too little; divide all images by all seconds": _mean_of_rates,
            "the images of one step are divided by the time of all": lambda batchsize, step_seconds: batchsize / sum(step_seconds),
            "steps per second, not images per second": lambda batchsize, step_seconds: len(step_seconds) / sum(step_seconds),
            "seconds per image, not images per second": lambda batchsize, step_seconds: 1 / _throughput(batchsize, step_seconds),
        },
        "Images: batch size times the number of steps. Seconds: the sum of all steps.",
    ),
    prediction("prediction_backward", 0.1, 20, "a part that takes so much longer, or shorter, is hard to believe of two parts that do much the same"),
    function(
        "smallest_batch",
        "the smallest that is good enough",
        lambda rates, share: min(_good_enough(rates, share)),
        {
            "that is the batch size with the best throughput; a smaller one may be nearly as good": lambda rates, share: max(rates, key=rates.get),
            "that is the largest batch size that is good enough, not the smallest": lambda rates, share: max(_good_enough(rates, share)),
            "that is the throughput; return the batch size, the key": lambda rates, share: rates[min(_good_enough(rates, share))],
            "the largest batch size need not have the best throughput": lambda rates, share: min(_good_enough(rates, share, rates[max(rates)])),
        },
        "max(rates.values()) is the best throughput; `rates.items()` gives pairs of batch size and throughput.",
    ),
    function(
        "limit",
        "the epoch now, against the epoch without the part",
        _limit,
        {
            "that is the part's share of the epoch": lambda seconds, part: seconds[part] / sum(seconds.values()),
            "that is what the epoch would shrink to; the speed-up is the other way round": lambda seconds, part: 1 / _limit(seconds, part),
            "the epoch is divided by the part; divide it by what is left without the part": lambda seconds, part: sum(seconds.values()) / seconds[part],
        },
        "sum(seconds.values()) is the time of the epoch; without the part, it is shorter by seconds[part].",
    ),
)


def _efficiency(single, several, workers):
    return several / single / workers


def _waits(arrivals, other=numpy.max):
    return other(arrivals, axis=1)[:, None] - arrivals


def _updates(images, batchsize, workers, epochs):
    return -(-images // (batchsize * workers)) * epochs


def _learning_rate(update, base, workers, warmup):
    return base * (1 + (workers - 1) * min(1, update / warmup))


MULTI_GPU = (
    function(
        "speed_up",
        "how many times as fast",
        lambda single, several: several / single,
        {
            "that is how many times as long it takes; the other way round": lambda single, several: single / several,
            "that is the difference of the throughputs": lambda single, several: several - single,
            "that is how much faster; twice as fast is a speed-up of 2, not of 1": lambda single, several: several / single - 1,
        },
        "A speed-up of 2 is twice the throughput.",
        points=1,
    ),
    function(
        "efficiency",
        "the part of the ideal speed-up",
        _efficiency,
        {
            "that is the speed-up; divide it by what it ideally is": lambda single, several, workers: several / single,
            "the workers are on the wrong side: ideally, N workers have N times the throughput of one": lambda single, several, workers: (
                several * workers / single
            ),
            "that is the part that was lost": lambda single, several, workers: 1 - _efficiency(single, several, workers),
            "upside down: the efficiency is 1 at best": lambda single, several, workers: 1 / _efficiency(single, several, workers),
        },
        "The ideal speed-up of N workers is N.",
    ),
    function(
        "waiting",
        "the mean wait of each rank",
        lambda arrivals: _waits(arrivals).mean(axis=0),
        {
            "that is how much later each rank comes than the first one; it waits for the last": lambda arrivals: -_waits(arrivals, numpy.min).mean(axis=0),
            "the sign is wrong: a rank waits from its own arrival until that of the last one": lambda arrivals: -_waits(arrivals).mean(axis=0),
            "that is the sum over the steps; the mean was asked for": lambda arrivals: _waits(arrivals).sum(axis=0),
            "that is the mean over all ranks; each rank has a number of its own": lambda arrivals: _waits(arrivals).mean(),
            "that has a number for each step: take the mean over the steps, axis 0": lambda arrivals: _waits(arrivals).mean(axis=1),
            "that is measured against one rank in all steps; the last rank may be another one in each step": lambda arrivals: (
                arrivals.mean(axis=0).max() - arrivals.mean(axis=0)
            ),
        },
        "arrivals.max(axis=1, keepdims=True) is when the last rank came, for each step.",
    ),
    function(
        "updates",
        "updates in all epochs",
        _updates,
        {
            "an epoch's last images are left out: with fewer than a whole batch, they make an update, too": lambda images, batchsize, workers, epochs: (
                images // (batchsize * workers) * epochs
            ),
            "those are the updates of one worker alone: all workers together take `workers` times as many images": (
                lambda images, batchsize, workers, epochs: _updates(images, batchsize, 1, epochs)
            ),
            "the updates of all workers are added up; they all make the same update together": lambda images, batchsize, workers, epochs: (
                _updates(images, batchsize, workers, epochs) * workers
            ),
            "those are the updates of one epoch": lambda images, batchsize, workers, epochs: _updates(images, batchsize, workers, 1),
            "the number is not whole: the last images of an epoch make an update, too": lambda images, batchsize, workers, epochs: (
                images / (batchsize * workers) * epochs
            ),
        },
        "An update takes batchsize * workers images; math.ceil rounds up.",
    ),
    prediction("prediction_error", 0, 100, "a part in percent lies between 0 and 100"),
    function(
        "learning_rate",
        "linear scaling with a warm-up",
        _learning_rate,
        {
            "the rate goes on rising after the warm-up": lambda update, base, workers, warmup: base * (1 + (workers - 1) * update / warmup),
            "that is the scaled rate from the first update on: there is no warm-up": lambda update, base, workers, warmup: base * workers,
            "the warm-up begins at 0; it is to begin at `base`": lambda update, base, workers, warmup: base * workers * min(1, update / warmup),
            "the rate jumps at the end of the warm-up; it is to rise in a straight line": lambda update, base, workers, warmup: (
                base if update < warmup else base * workers
            ),
            "the rate is that of one worker": lambda update, base, workers, warmup: base,
            "it rises to base * (1 + workers); the end of the warm-up is base * workers": lambda update, base, workers, warmup: (
                base * (1 + workers * min(1, update / warmup))
            ),
        },
        "min(1, update / warmup) is how far the warm-up has come.",
    ),
)


def _scaling(throughputs, speed_up=lambda rate, single: rate / single, efficiency=lambda speed_up, workers: speed_up / workers):
    rows = []
    for workers, rate in sorted(throughputs.items()):
        times = speed_up(rate, throughputs[1])
        rows.append([workers, rate, times, efficiency(times, workers)])
    return rows


def _last_of_unbroken(table, least):
    """The workers of the last row before the first that is too inefficient."""
    return [row[0] for number, row in enumerate(table) if all(before[3] >= least for before in table[: number + 1])][-1]


def _allreduce(parameters, workers, megabits):
    return 8 * 4 * parameters * 2 * (workers - 1) / workers / (megabits * 1e6)


MULTI_NODE = (
    function(
        "intra_rank",
        "the number on the node",
        lambda rank, per_node: rank % per_node,
        {
            "that is the inter_rank, the number of the node": lambda rank, per_node: rank // per_node,
            "that is the rank itself; on each node, the intra_ranks begin at 0": lambda rank, per_node: rank,
            "intra_ranks begin at 0, not at 1": lambda rank, per_node: rank % per_node + 1,
        },
        "With two ranks a node, ranks 0, 1, 2, 3 have the intra_ranks 0, 1, 0, 1.",
        points=1,
    ),
    function(
        "total_accuracy",
        "the accuracy on the whole test set",
        lambda correct, images: sum(correct) / sum(images),
        {
            "that is the mean of the ranks' accuracies: a rank with few images then weighs as much as one with many": lambda correct, images: (
                sum(one / of for one, of in zip(correct, images)) / len(images)
            ),
            "that is rank 0's accuracy": lambda correct, images: correct[0] / images[0],
            "that adds the ranks' accuracies": lambda correct, images: sum(one / of for one, of in zip(correct, images)),
            "that is the error; the accuracy is the part that is correct": lambda correct, images: 1 - sum(correct) / sum(images),
        },
        "Add up what is correct on all ranks, and the images of all ranks.",
    ),
    prediction("prediction_efficiency", 0, 2, "an efficiency is about 1 at best, and 0 at worst"),
    function(
        "scaling",
        "throughput, speed-up and efficiency of each row",
        _scaling,
        {
            "the efficiencies are the speed-ups again: divide by the workers": lambda throughputs: _scaling(throughputs, efficiency=lambda times, _: times),
            "the speed-ups are upside down": lambda throughputs: _scaling(throughputs, lambda rate, single: single / rate),
            "the efficiencies are in percent; 1 is the best": lambda throughputs: _scaling(throughputs, efficiency=lambda times, of: 100 * times / of),
            "the rows are not in the order of the workers": lambda throughputs: [
                row for workers in throughputs for row in _scaling(throughputs) if row[0] == workers
            ],
        },
        "The speed-up is against throughputs[1]; the efficiency is the speed-up divided by the workers.",
    ),
    function(
        "most_workers",
        "the most workers that are efficient enough",
        lambda table, least: max(row[0] for row in table if row[3] >= least),
        {
            "that is the largest number of workers in the table, efficient or not": lambda table, least: max(row[0] for row in table),
            "that is the smallest number of workers that is efficient enough": lambda table, least: min(row[0] for row in table if row[3] >= least),
            "the speed-up is compared with `least`; the efficiency is in the last column": lambda table, least: max(
                row[0] for row in table if row[2] >= least
            ),
            "it stops at the first row that is too inefficient; a later one may be efficient enough": _last_of_unbroken,
        },
        "Each row is [workers, images/s, speed-up, efficiency].",
    ),
    function(
        "allreduce_seconds",
        "the time that the bytes take",
        _allreduce,
        {
            "bytes are taken for bits: a byte has 8": lambda parameters, workers, megabits: _allreduce(parameters, workers, megabits) / 8,
            "each gradient is counted as one byte; it has 4": lambda parameters, workers, megabits: _allreduce(parameters, workers, megabits) / 4,
            "the gradients are sent once; in a ring each rank sends 2 (N - 1) / N times their size": lambda parameters, workers, megabits: (
                32 * parameters / megabits / 1e6
            ),
            "the factor 2 is missing: sums go round the ring, and then the results": lambda parameters, workers, megabits: (
                _allreduce(parameters, workers, megabits) / 2
            ),
            "each rank sends (N - 1) / N of the gradients twice, not all of them to each of the others": lambda parameters, workers, megabits: (
                _allreduce(parameters, workers, megabits) * workers
            ),
            "those are milliseconds; seconds were asked for": lambda parameters, workers, megabits: 1000 * _allreduce(parameters, workers, megabits),
        },
        "bits = 8 * 4 * parameters * 2 * (workers - 1) / workers",
    ),
)
