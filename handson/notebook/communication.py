"""Figures and numbers of notebook 05_communication: all-reduces, and methods of communication compared."""

import json
from pathlib import Path

import numpy

from handson.notebook.plots import _axes, picture
from handson.training import results

# marker and line of each algorithm
STYLES = {"naive": ("s", "-"), "ring": ("o", "-"), "doubling": ("^", "--"), "gloo": ("D", ":")}
LIKE = ("0.1", "0.45", "0.65", "0.3")


def all_reduces(folder):
    """What a run of all_reduce.py has measured: {"ranks": N, "rows": [{"algorithm", "bytes", "seconds", "messages",
    "sent"}]}."""
    return json.loads(Path(folder, "all_reduce.json").read_text())


def of(measured, algorithm):
    """(bytes, seconds) of an algorithm's rows, as two arrays."""
    rows = [row for row in measured["rows"] if row["algorithm"] == algorithm]
    return numpy.array([row["bytes"] for row in rows]), numpy.array([row["seconds"] for row in rows])


def seconds_against_bytes(measured, predicted=None):
    """The seconds of each algorithm against the size of the message; predicted: algorithm -> a function of the bytes,
    drawn as a thin line."""
    drawing, (axes,) = _axes(7.5, 3.8)
    for colour, (algorithm, (marker, line)) in zip(LIKE, STYLES.items()):
        sizes, seconds = of(measured, algorithm)
        if len(sizes):
            axes.plot(
                sizes,
                1000 * seconds,
                color=colour,
                marker=marker,
                linestyle=line,
                markersize=5,
                markerfacecolor="white",
                label=algorithm,
            )
            if algorithm in (predicted or {}):
                axes.plot(sizes, [1000 * predicted[algorithm](size) for size in sizes], color="#D55E00", linewidth=1)
    if predicted:
        axes.plot([], [], color="#D55E00", linewidth=1, label="predicted")
    axes.set(xscale="log", yscale="log", xlabel="size of the message [bytes]", ylabel="time of an all-reduce [ms]")
    axes.legend(fontsize="small", edgecolor="none")
    return picture(
        drawing,
        f"Time of all-reduces among {measured['ranks']} ranks against the size of the message, both in logarithmic"
        " scale.",
    )


def bytes_sent(measured, formulas):
    """What the rank that sends most has sent of the largest message, as a multiple of its size, beside what
    formulas[algorithm](ranks) say."""
    largest = max(row["bytes"] for row in measured["rows"])
    counted = {
        row["algorithm"]: max(row["sent"]) / largest
        for row in measured["rows"]
        if row["bytes"] == largest and max(row["sent"])
    }
    drawing, (axes,) = _axes(6, 2.2)
    for place, (algorithm, multiple) in enumerate(counted.items()):
        axes.barh(place, multiple, height=0.55, facecolor="#E69F00", edgecolor="0.25")
        axes.plot(
            formulas[algorithm](measured["ranks"]),
            place,
            color="black",
            marker="|",
            markersize=24,
            markeredgewidth=2,
            linestyle="none",
        )
    axes.set(
        yticks=range(len(counted)),
        yticklabels=list(counted),
        xlabel="sent by the busiest rank, as a multiple of the message; black: the formula",
        xlim=(0, None),
    )
    axes.invert_yaxis()
    return picture(
        drawing,
        "Sent by the busiest rank: "
        + ", ".join(f"{name} {value:.2f} messages" for name, value in counted.items())
        + ".",
    )


def trainings(folder):
    """The results of train_hooks.py in a folder: method -> [handson.training.results.Result of each seed]."""
    found = {}
    for path in sorted(Path(folder).glob("*/result.json"), key=lambda path: path.stat().st_mtime_ns):
        found.setdefault(path.parent.name.rpartition("_")[0], []).append(results.read(path))
    return found


def seconds_to(run, accuracy):
    """The seconds of training after which a run first had this validation accuracy; None if it never had."""
    return next((row["elapsed_time"] for row in run.log if row["validation/main/accuracy"] >= accuracy), None)


def rate(run):
    """Images per second after the first epoch, which has a method's warm start and all that happens only once."""
    first, last = run.log[0], run.log[-1]
    if first is last:
        return run.throughput
    return run.images / run.epochs * (last["epoch"] - first["epoch"]) / (last["elapsed_time"] - first["elapsed_time"])


def some_gradients():
    """The gradients of WideNet after one epoch of training on one rank, for a batch of 64 digits: a float32 tensor with
    one dimension."""
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
    """Throughput of each method, a bar for the median and a mark for each seed; beside it, what a node sent in the
    whole run."""
    drawing, (left, right) = _axes(9, 0.8 + 0.36 * len(runs), columns=2, sharey=True)
    for place, (method, of_method) in enumerate(runs.items()):
        rates, sent = [rate(run) for run in of_method], [run.log[-1]["bytes"] / 1e6 for run in of_method]
        left.barh(place, numpy.median(rates), height=0.55, facecolor="#9ECAE1", edgecolor="0.25")
        left.plot(rates, [place] * len(rates), "k|", markersize=9)
        right.barh(place, numpy.median(sent), height=0.55, facecolor="#E69F00", edgecolor="0.25")
    left.set(
        yticks=range(len(runs)),
        yticklabels=list(runs),
        xlabel="images/s after the first epoch; marks: seeds",
        xlim=(0, None),
    )
    right.set(xlabel="sent by a node in all epochs [MB]", xlim=(0, None))
    left.invert_yaxis()
    return picture(
        drawing,
        "Throughput: "
        + ", ".join(
            f"{method} {numpy.median([rate(run) for run in some]):.0f} images/s" for method, some in runs.items()
        )
        + ".",
    )


def to_accuracy(runs, accuracy, without_limit=None):
    """Seconds to an accuracy for each method: a bar for the median, a point for each seed. A method with a seed that
    never reached it has a white bar. without_limit: the same runs of another folder, without a limit of the network,
    drawn as a dashed line (their fastest method)."""
    drawing, (axes,) = _axes(7.5, 0.9 + 0.36 * len(runs))
    words = []
    for place, (method, of_method) in enumerate(runs.items()):
        reached = [seconds for run in of_method if (seconds := seconds_to(run, accuracy)) is not None]
        missed = len(of_method) - len(reached)
        if reached:
            axes.barh(
                place, numpy.median(reached), height=0.55, facecolor="white" if missed else "0.8", edgecolor="0.25"
            )
            axes.plot(reached, [place] * len(reached), "ko", markersize=4)
        if missed:
            beside = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": "small"}
            white = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            axes.annotate(
                f"{missed} of {len(of_method)} seeds did not reach it",
                (max(reached, default=0), place),
                bbox=white,
                zorder=3,
                **beside,
            )
        words.append(f"{method} {numpy.median(reached):.1f} s" if reached else f"{method} never")
    best = [
        seconds for run in (without_limit or {}).get("plain", ()) if (seconds := seconds_to(run, accuracy)) is not None
    ]
    if best:
        axes.axvline(
            numpy.median(best), color="0.3", linestyle="--", linewidth=1, label="plain, network without a limit"
        )
        axes.legend(fontsize="small", frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.set(
        yticks=range(len(runs)),
        yticklabels=list(runs),
        xlabel=f"seconds of training to a validation accuracy of {accuracy}",
        xlim=(0, None),
    )
    axes.set_ylim(len(runs) - 0.5, -0.5)
    return picture(drawing, f"Seconds to an accuracy of {accuracy}: " + ", ".join(words) + ".")


def accuracies(runs, methods):
    """Validation accuracy after each epoch of some methods, the mean over the seeds and their range."""
    drawing, (axes,) = _axes(7, 3.4)
    _curves(axes, runs, methods, "validation/main/accuracy")
    axes.set(ylabel="validation accuracy")
    axes.legend(fontsize="small", edgecolor="none", loc="lower right")
    return picture(drawing, f"Validation accuracy; at the end: {_ends(runs, methods, 'validation/main/accuracy')}.")


def losses(runs, methods):
    """As `accuracies`, beside the loss of the last batch of each epoch in logarithmic scale, which shows what a method
    still has to learn."""
    drawing, (left, right) = _axes(10, 3.4, columns=2)
    _curves(left, runs, methods, "main/loss")
    left.set(ylabel="training loss", yscale="log")
    _curves(right, runs, methods, "validation/main/accuracy")
    right.set(ylabel="validation accuracy")
    right.legend(fontsize="small", edgecolor="none", loc="lower right")
    return picture(
        drawing,
        f"Training loss at the end: {_ends(runs, methods, 'main/loss')}. Validation accuracy:"
        f" {_ends(runs, methods, 'validation/main/accuracy')}.",
    )


def _curves(axes, runs, methods, what):
    for colour, marker, line, method in zip(
        ("#000000", "#D55E00", "#0072B2", "#009E73"), "o^sD", ("-", "--", "-.", ":"), methods
    ):
        curves = numpy.array([[row[what] for row in run.log] for run in runs[method]], float)
        epochs = numpy.arange(1, curves.shape[1] + 1)
        axes.plot(
            epochs,
            curves.mean(axis=0),
            color=colour,
            marker=marker,
            linestyle=line,
            markerfacecolor="white",
            label=method,
        )
        axes.fill_between(epochs, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _ends(runs, methods, what):
    return ", ".join(f"{method} {numpy.mean([run.log[-1][what] for run in runs[method]]):.3f}" for method in methods)
