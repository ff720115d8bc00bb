"""The checks of the notebooks' gaps: functions that compute, read a table or plan, and predictions, where any sensible number counts."""

import numpy

from grader.checks import judges
from grader.checks.check import Check, Criterion
from grader.probes.notebooks import inputs

PROBES = "grader.probes.notebooks"


def computes(right, wrong):
    """A judge: the function gives what `right` gives for the same arguments; `wrong`: sentence -> a function with that mistake."""

    def judge(seen, case, expected):
        calls, found = inputs(case), seen[0]["values"]
        for given, value in zip(calls, found):
            due = right(**given)
            if judges.close(value, due):
                continue
            for sentence, mistake in wrong.items():  # a mistake must explain all calls: one may come out right by chance
                if all(judges.close(one, mistake(**arguments)) for arguments, one in zip(calls, found)):
                    return sentence
            if any(judges.close(value, numpy.round(due, digits)) for digits in range(4)):
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
