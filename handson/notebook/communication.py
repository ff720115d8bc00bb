"""The figures of the notebooks 05_communication and 05b_communication: all-reduces, methods of communication,
failures."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy

from handson import figures
from handson.compare import note
from handson.figures import BLUE, ORANGE, PREDICTED, SERIES, YOURS, picture
from handson.language import speak
from handson.notebook.runs import all_of, rate
from handson.profiling import usage

# grey, marker and line style of each algorithm
STYLES = {
    "naive": dict(color="0.1", marker="s", linestyle="-"),
    "ring": dict(color="0.45", marker="o", linestyle="-"),
    "doubling": dict(color="0.65", marker="^", linestyle="--"),
    "gloo": dict(color="0.3", marker="D", linestyle=":"),
}
NO_LOSS = 0.02  # loss of accuracy that the prediction of the largest H allows
ALL_KB = 1800  # all gradients of DeepNet, in KB
SMALL = dict(fontsize="small", edgecolor="none")  # legends


@dataclass(frozen=True)
class Measured:
    """A run without a result file, for `note`."""

    disturbance: usage.Disturbance | None


def all_reduces(folder):
    """Return the measurements of a run of all_reduce.py: {"ranks": N, "usage": its Usage, "rows": [{"algorithm",
    "bytes", "seconds", "messages", "sent"}]}."""
    return json.loads(Path(folder, "all_reduce.json").read_text())


def of(measured, algorithm):
    """Return (bytes, seconds) of an algorithm's rows, as two arrays."""
    rows = [row for row in measured["rows"] if row["algorithm"] == algorithm]
    return numpy.array([row["bytes"] for row in rows]), numpy.array([row["seconds"] for row in rows])


def seconds_against_bytes(measured, predicted=None, crossing=None):
    """Draw the seconds of each algorithm against the size of the message.

    predicted: algorithm -> a function of the bytes, drawn as a thin line; crossing: the student's prediction of the
    size from which on the ring is faster than doubling.
    """
    drawing, axes = figures.axes(7.5, 3.8)
    for algorithm, style in STYLES.items():
        sizes, seconds = of(measured, algorithm)
        if len(sizes):
            axes.plot(sizes, 1000 * seconds, **style, markersize=5, markerfacecolor="white", label=algorithm)
            if algorithm in (predicted or {}):
                expected = [1000 * predicted[algorithm](size) for size in sizes]
                line = dict(color=PREDICTED, linewidth=1, linestyle=style["linestyle"], label=f"{algorithm}, predicted")
                axes.plot(sizes, expected, **line)
    if crossing:
        axes.axvline(crossing, **YOURS, label=f"you expect the ring to win from {crossing:,} bytes on")
    axes.set(xscale="log", yscale="log", xlabel="size of the message [bytes]", ylabel="time of an all-reduce [ms]")
    figures.legend_above(axes, ncols=3)
    return picture(
        drawing,
        f"Time of all-reduces among {measured['ranks']} ranks against the size of the message, both in logarithmic"
        " scale." + note(drawing, [Measured(usage.disturbance(measured.get("usage"), measured["ranks"]))]),
    )


def bytes_sent(measured, formulas):
    """Draw the bytes that the busiest rank has sent for the largest message, as a multiple of its size, next to the
    results of formulas[algorithm](ranks)."""
    largest = max(row["bytes"] for row in measured["rows"])
    rows = [row for row in measured["rows"] if row["bytes"] == largest and max(row["sent"])]
    counted = {row["algorithm"]: max(row["sent"]) / largest for row in rows}
    drawing, axes = figures.axes(6, 2.2)
    expected = {algorithm: formulas[algorithm](measured["ranks"]) for algorithm in counted}
    figures.bars(axes, counted, "sent by the busiest rank [messages]; long line: the formula", expected)
    words = ", ".join(f"{name} {value:.2f} messages" for name, value in counted.items())
    return picture(drawing, f"Sent by the busiest rank: {words}.")


def seconds_to(run, accuracy):
    """Return the seconds of training after which a run first reached this validation accuracy, or None if it never
    did."""
    return next((row["elapsed_time"] for row in run.log if row["validation/main/accuracy"] >= accuracy), None)


def some_gradients():
    """Return the gradients of WideNet for a batch of 64 digits, after one epoch of training on one rank: a float32
    tensor with one dimension."""
    import torch
    import torch.nn.functional as F

    from handson.pytorch.model import WideNet
    from handson.training import data

    torch.manual_seed(0)
    train_set, _ = data.load("digits")
    model = WideNet(len(train_set.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in zip(train_set.images.split(64), train_set.labels.split(64)):
        optimizer.zero_grad()
        F.cross_entropy(model(data.enlarge(images, 32)), labels).backward()
        optimizer.step()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def throughputs(runs):
    """Draw the throughput of each method, a bar for the median and a mark per seed, and next to it the bytes that a
    node sent in the whole run. runs: method -> [Result of each seed]."""
    drawing, left, right = figures.axes(9, 0.8 + 0.36 * len(runs), columns=2, sharey=True)
    rates = {method: list(map(rate, of_method)) for method, of_method in runs.items()}
    figures.bars(left, rates, "images/s after the first epoch; marks: seeds")
    sent = {method: numpy.median(_megabytes(of_method)) for method, of_method in runs.items()}
    figures.bars(right, sent, "sent by a node in all epochs [MB]", color=ORANGE)
    words = f"Throughput: {figures.medians(rates, '{:.0f} images/s')}."
    return picture(drawing, words + note(drawing, all_of(runs)))


def _megabytes(runs):
    return [run.log[-1]["bytes"] / 1e6 for run in runs]


def to_accuracy(runs, accuracy, without_limit=None, sooner=None):
    """Draw the time to an accuracy for each method: a bar for the median, a mark for each seed. A method with a seed
    that never reached it has a white bar.

    without_limit: the same runs from another folder, without a network limit; their method `plain` is drawn as a
    dashed line. sooner: how many times as fast as `plain` the student expects the best method to be.
    """
    drawing, axes = figures.axes(7.5, 0.9 + 0.36 * len(runs))
    reached = {method: _seconds_to(of_method, accuracy) for method, of_method in runs.items()}
    missed = {method: len(of_method) - len(reached[method]) for method, of_method in runs.items()}
    xlabel = f"seconds of training to a validation accuracy of {accuracy}"
    colours = ["white" if missed[method] else "0.8" for method in runs]
    figures.bars(axes, {method: found or 0 for method, found in reached.items()}, xlabel, color=colours)
    beside = dict(xytext=(6, 0), textcoords="offset points", va="center", fontsize="small", zorder=3)
    beside["bbox"] = dict(facecolor="white", edgecolor="none", pad=0.5)
    for place, (method, count) in enumerate(missed.items()):
        if count:
            words = f"{count} of {len(runs[method])} seeds did not reach it"
            axes.annotate(words, (max(reached[method], default=0), place), **beside)
    if best := _seconds_to((without_limit or {}).get("plain", ()), accuracy):
        style = dict(color="0.3", linestyle="--", linewidth=1, label="plain, network without a limit")
        axes.axvline(numpy.median(best), **style)
    if sooner and reached.get("plain"):
        axes.axvline(numpy.median(reached["plain"]) / sooner, **YOURS, label="you expect the best method here")
    if axes.get_legend_handles_labels()[0]:
        figures.legend_above(axes)
    if any(missed.values()):
        axes.set_xlim(0, 1.5 * max(max(found, default=0) for found in reached.values()) or 1)
    words = [
        f"{method} {numpy.median(found):.1f} s" if found else f"{method} never" for method, found in reached.items()
    ]
    words = f"Seconds to an accuracy of {accuracy}: {', '.join(words)}."
    return picture(drawing, words + note(drawing, all_of(runs)))


def order(runs, accuracy, predicted):
    """Print the predicted and the measured order in which methods reached an accuracy, the fastest first, and how many
    pairs of them are in the right order. Methods with a seed that never reached it come last. predicted: a text with
    their names; None prints nothing."""
    if predicted is None:  # a student may skip the prediction
        return
    names = [name for name in re.findall(r"\w+(?:-\w+)*", predicted) if name in runs]
    each = {name: [seconds_to(run, accuracy) for run in runs[name]] for name in names}
    seconds = {name: numpy.inf if None in of_seeds else numpy.median(of_seeds) for name, of_seeds in each.items()}
    pairs = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    right = sum(seconds[one] <= seconds[other] for one, other in pairs)
    speak(f"predicted: {', '.join(names)}")
    speak(f"measured:  {', '.join(sorted(names, key=seconds.get))}")
    speak(f"{right} of {len(pairs)} pairs are in the right order.")


def _seconds_to(runs, accuracy):
    """Return the seconds of the runs that reached the accuracy."""
    return [seconds for run in runs if (seconds := seconds_to(run, accuracy)) is not None]


def accuracies(runs, methods, updates=None):
    """Draw the validation accuracy after each epoch of some methods: the mean over the seeds, and their range. updates:
    method -> updates per epoch; the accuracy is then drawn against the number of updates."""
    drawing, axes = figures.axes(7, 3.4)
    words = _draw_epochs(axes, runs, methods, "validation/main/accuracy", updates)
    axes.set(ylabel="validation accuracy")
    axes.legend(**SMALL, loc="lower right")
    used = all_of({method: runs[method] for method in methods})
    return picture(drawing, f"Validation accuracy; at the end: {words}." + note(drawing, used))


def losses(runs, methods):
    """Like `accuracies`, and next to it the loss of the last batch of each epoch on a logarithmic scale, where small
    losses can be told apart."""
    drawing, left, right = figures.axes(10, 3.4, columns=2)
    losses = _draw_epochs(left, runs, methods, "main/loss")
    left.set(ylabel="training loss", yscale="log")
    accuracies = _draw_epochs(right, runs, methods, "validation/main/accuracy")
    right.set(ylabel="validation accuracy")
    right.legend(**SMALL, loc="lower right")
    return picture(drawing, f"Training loss at the end: {losses}. Validation accuracy: {accuracies}.")


def _draw_epochs(axes, runs, methods, what, updates=None):
    """Draw the log's `what` after each epoch, and return the final values in words. updates: as in `accuracies`."""
    for style, method in zip(SERIES, methods):
        values = numpy.array([[row[what] for row in run.log] for run in runs[method]], float)
        each = updates[method] if updates else 1
        figures.band(axes, each * numpy.arange(1, values.shape[1] + 1), values, style, method)
    axes.set(xlabel="updates of the parameters" if updates else "epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)
    return ", ".join(f"{method} {numpy.mean([run.log[-1][what] for run in runs[method]]):.3f}" for method in methods)


def buckets(runs, reference="torch-ddp", expected=None):
    """Draw the throughput against the bucket size. runs: method -> [Result of each seed]; reference: the method that is
    drawn as a dashed line; expected: the size in KB that the student expects to be the fastest."""
    drawing, axes = figures.axes(6.5, 3.2)
    rates = {method: [run.throughput for run in of_method] for method, of_method in runs.items()}
    sizes = [method for method in runs if method != reference]
    axes.plot(sizes, [numpy.median(rates[size]) for size in sizes], **SERIES[0], label="from scratch")
    for size in sizes:
        axes.plot([size] * len(rates[size]), rates[size], "k_", markersize=9)
    if reference in rates:
        axes.axhline(numpy.median(rates[reference]), color=BLUE, linestyle="--", label=reference)
    if expected:
        kilobytes = [ALL_KB if size == "one-bucket" else int(size.partition("-")[0]) for size in sizes]
        place = numpy.interp(expected, kilobytes, range(len(sizes)))
        axes.axvline(place, **YOURS, label=f"you expect {expected:g} KB to be the fastest")
    axes.set(xlabel="largest size of a bucket", ylabel="throughput [images/s]")
    axes.set_ylim(0, 1.1 * max(map(max, rates.values())))
    figures.legend_above(axes)
    words = f"Throughput: {figures.medians(rates, '{:.0f} images/s')}."
    return picture(drawing, words + note(drawing, all_of(runs)))


def periods(runs, formula=None, expected=None):
    """Draw the final accuracy, and the bytes sent, against the steps between two averages. runs: "local-sgd-4", ... ->
    [Result of each seed].

    formula: a function of these steps, which returns the bytes that a node should send; expected: the largest number of
    steps that the student expects to cost hardly any accuracy.
    """
    drawing, left, right = figures.axes(9, 3.2, columns=2)
    words, kinds = [], {}
    for method, of_method in runs.items():
        kind, period = re.fullmatch(r"(.+)-(\d+)", method).groups()
        kinds.setdefault(kind.replace("-", " "), {})[int(period)] = of_method
    for (kind, by_period), style in zip(kinds.items(), SERIES):
        ends = {
            period: [run.log[-1]["validation/main/accuracy"] for run in by_period[period]]
            for period in sorted(by_period)
        }
        sent = {period: numpy.median(_megabytes(by_period[period])) for period in ends}
        left.plot(list(ends), [numpy.mean(of_period) for of_period in ends.values()], **style, label=kind)
        right.plot(list(sent), list(sent.values()), **style, label=kind)
        for period, of_period in ends.items():
            left.plot([period] * len(of_period), of_period, color=style["color"], marker="_", linestyle="none")
            words.append(f"{kind} {period}: {numpy.mean(of_period):.3f}, {sent[period]:.1f} MB")
    every = sorted({period for by_period in kinds.values() for period in by_period})
    if formula:
        sent = [formula(period) / 1e6 for period in every]
        right.plot(every, sent, color=BLUE, linewidth=4, alpha=0.4, label="formula")
        right.legend(**SMALL)
    if base := kinds.get("local sgd", {}).get(1):
        line = _mean_at_the_end(base) - NO_LOSS
        left.axhline(line, color="0.3", linestyle=":", linewidth=1, label=f"{NO_LOSS} below H = 1")
    if expected:
        left.axvline(expected, **YOURS, label=f"you expect this up to {expected}")
    lowest = min(_mean_at_the_end(of_method) for of_method in runs.values())
    left.set(ylabel="validation accuracy at the end", ylim=(min(0.8, lowest - 0.1), 1))
    left.legend(**SMALL, loc="lower left")
    right.set(ylabel="sent by a node in the whole run [MB]")
    _scale_of_periods(left, right, every)
    words = f"Accuracy and megabytes sent against the steps between two averages: {'; '.join(words)}."
    return picture(drawing, words + note(drawing, all_of(runs)))


def _mean_at_the_end(runs):
    return numpy.mean([run.log[-1]["validation/main/accuracy"] for run in runs])


def _scale_of_periods(left, right, periods):
    from matplotlib.ticker import LogLocator, NullLocator

    for axes in (left, right):
        axes.set(xscale="log", xlabel="H: steps between two averages")
        axes.set_xticks(periods, map(str, periods))
        axes.minorticks_off()
    right.set_yscale("log")
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_major_formatter("{x:g}")
    right.yaxis.set_minor_locator(NullLocator())


def staleness(runs, expected=None):
    """Draw histograms of the staleness of gradients, side by side. runs: method -> [Result of each seed] of
    train_parameter_server.py; expected: the staleness that the student expects most often."""
    drawing, axes = figures.axes(7, 3)
    counted, words = {method: _counted(of_method) for method, of_method in runs.items()}, []
    for method, times in counted.items():
        mean = sum(one * count for one, count in times.items()) / times.total()
        words.append(f"{method}: mean {mean:.2f}, largest {max(times)}")
    places = range(1 + max(max(times) for times in counted.values()))
    shares = {method: [100 * times[one] / times.total() for one in places] for method, times in counted.items()}
    figures.bars_beside(axes, shares)
    if expected is not None:
        axes.axvline(expected, **YOURS, label=f"you expect {expected} most often")
    axes.set(xlabel="staleness [updates of the server]", ylabel="gradients [%]")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(**SMALL)
    words = f"Staleness of gradients. {'; '.join(words)}."
    return picture(drawing, words + note(drawing, all_of(runs)))


def _counted(runs):
    """Return how often each staleness occurred in some runs, as a Counter."""
    found = Counter()
    for row in (row for run in runs for row in run.log):
        found.update({int(name.split()[1]): int(times) for name, times in row.items() if name.startswith("staleness ")})
    return found


def sessions(runs, predicted=None):
    """Draw the throughput of each run of train_cntk.py on the left, and its loss after each epoch on the right. runs:
    name -> Result; predicted: name -> images/s, drawn as a long line."""
    drawing, left, right = figures.axes(9, 2.6, columns=2)
    xlabel = "throughput [images/s]" + "; long line: predicted" * bool(predicted)
    figures.bars(left, {name: run.throughput for name, run in runs.items()}, xlabel, predicted)
    for style, (name, run) in zip(SERIES, runs.items()):
        losses = [numpy.nan if row["main/loss"] is None else row["main/loss"] for row in run.log]
        right.plot(range(1, len(losses) + 1), losses, **style, label=name)
    right.set(xlabel="epoch", ylabel="loss while training", ylim=(0, None))
    right.xaxis.get_major_locator().set_params(integer=True)
    right.legend(**SMALL)
    words = (
        f"{name}: {run.throughput:.0f} images/s, loss {run.log[-1]['main/loss']:.2f} in the last epoch"
        for name, run in runs.items()
    )
    return picture(drawing, "; ".join(words) + "." + note(drawing, list(runs.values())))


def lost_shares(lost_share, checkpoint, betweens):
    """Draw the share of time that is lost against the seconds between two checkpoints, with a line for each number of
    seconds between failures. The best interval of Young's formula is marked independently of `lost_share`."""
    intervals = numpy.geomspace(2 * checkpoint, 3e5, 120)
    drawing, axes = figures.axes(7, 3.4)
    words = []
    for line, between in zip(("-", "--", ":"), betweens):
        shares = numpy.array([100 * lost_share(interval, checkpoint, between) for interval in intervals])
        best, failures = int(shares.argmin()), f"a failure every {between / 3600:g} hours"
        young = (2 * checkpoint * between) ** 0.5
        axes.plot(intervals, shares, color="black", linestyle=line, label=failures)
        axes.axvline(young, color=PREDICTED, linestyle=line, linewidth=1)
        words.append(
            f"{failures}: best every {intervals[best]:.0f} s, {shares[best]:.1f} % lost; by Young's formula every"
            f" {young:.0f} s"
        )
    axes.set(xscale="log", xlabel="seconds between two checkpoints", ylabel="share of time that is lost [%]")
    axes.plot([], [], color=PREDICTED, linewidth=1, label="Young's best interval")
    axes.set_ylim(0, 40)
    axes.legend(**SMALL, loc="upper center", bbox_to_anchor=(0.4, 1.0))
    words = "; ".join(words)
    return picture(drawing, f"Share of time that is lost against the seconds between checkpoints; {words}.")
