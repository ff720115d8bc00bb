"""The figures that the notebooks draw of what they have measured: each function returns a picture."""

import numpy

from handson import figures
from handson.figures import CORES, IDEAL, PREDICTED, SERIES, picture

RANKS = (("0.35", None), ("0.85", "///"), ("0.6", "..."), ("1", "xxx"))  # shade and hatching of each rank's bars


def _axes(width=7.5, height=3.2, columns=1, **options):
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(width, height), layout="constrained")
    all_axes = drawing.subplots(1, columns, squeeze=False, **options)[0]
    for axes in all_axes:
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return drawing, all_axes


def _style(part):
    return figures.part({"load": "loading"}.get(part, part))


def parts_of_step(seconds, parts=("forward", "backward", "optimize")):
    """A bar for the median time of each part of a step, with a point for every step; seconds: part -> the seconds in
    each step."""
    drawing, (axes,) = _axes(6, 2.1)
    for row, part in enumerate(parts):
        milliseconds = 1000 * numpy.asarray(seconds[part])
        axes.barh(row, numpy.median(milliseconds), height=0.6, **_style(part))
        axes.plot(milliseconds, numpy.full(len(milliseconds), row), "k|", markersize=9, alpha=0.5)
    axes.set(
        yticks=range(len(parts)), yticklabels=parts, xlabel="time in a step [ms]; a mark for every step", xlim=(0, None)
    )
    axes.invert_yaxis()
    medians = ", ".join(f"{part} {1000 * numpy.median(seconds[part]):.1f} ms" for part in parts)
    return picture(drawing, f"Median time in a step: {medians}.")


def throughputs(rates):
    """Throughput against batch size; rates: batch size -> images/s."""
    drawing, (axes,) = _axes(6, 3)
    sizes = sorted(rates)
    axes.plot(sizes, [rates[size] for size in sizes], color="black", marker="o", markerfacecolor="white")
    axes.axhline(max(rates.values()), **IDEAL | {"label": None})
    axes.annotate(
        "best",
        (0, max(rates.values())),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        color="0.3",
    )
    axes.set(
        xscale="log", xlabel="batch size [images]", ylabel="throughput [images/s]", ylim=(0, 1.15 * max(rates.values()))
    )
    axes.set_xticks(sizes, map(str, sizes))
    axes.minorticks_off()
    return picture(
        drawing,
        "Throughput against batch size: " + ", ".join(f"{size}: {rates[size]:.0f} images/s" for size in sizes) + ".",
    )


def epoch(seconds):
    """One bar with the parts of an epoch; seconds: part -> seconds."""
    drawing, (axes,) = _axes(7.5, 1.9)
    left, total = 0, sum(seconds.values())
    for part, length in seconds.items():
        axes.barh(0, length, left=left, height=0.5, label=f"{part} {100 * length / total:.0f} %", **_style(part))
        left += length
    axes.set(yticks=[], xlabel="time of one epoch [s]", xlim=(0, total), ylim=(-0.35, 0.35))
    axes.legend(
        ncols=len(seconds),
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        fontsize="small",
        frameon=False,
        handlelength=1.2,
        columnspacing=1,
    )
    return picture(
        drawing, "An epoch: " + ", ".join(f"{part} {length:.2f} s" for part, length in seconds.items()) + "."
    )


def speed_up(workers, rates, track="pytorch", cores=None):
    """Speed-up against workers, beside the ideal line and the lecture's; rates: images/s for each number in workers,
    which begin with 1.

    cores: how many cores the workers share; with more workers than cores, the line of what these allow is drawn, too.
    """
    from handson.compare import LECTURE, TRACKS

    drawing, (axes,) = _axes(5.5, 3.4)
    most = max(workers)
    axes.plot([1, most], [1, most], **IDEAL)
    if cores and cores < most:
        axes.plot([1, cores, most], [1, cores, cores], **CORES)
    lecture = {number: rate / LECTURE[1] for number, rate in LECTURE.items() if number <= most}
    axes.plot(list(lecture), list(lecture.values()), color="0.6", marker="s", linestyle="-", label="the lecture")
    ours, (name, colour, marker) = [rate / rates[0] for rate in rates], TRACKS[track]
    axes.plot(workers, ours, color=colour, marker=marker, label=f"your runs, {name}")
    axes.set(
        xlabel="workers", ylabel="speed-up", xticks=workers, xlim=(0.8, most + 0.2), ylim=(0, 1.05 * max(most, *ours))
    )
    axes.legend(loc="upper left", fontsize="small", edgecolor="none")
    points = ", ".join(f"{number} workers {value:.2f}" for number, value in zip(workers, ours))
    limit = f"; {cores} cores allow {cores}" if cores and cores < most else ""
    return picture(drawing, f"Speed-up against workers, {name}: {points}; ideal: as many as workers{limit}.")


def ranks(steps, count=4):
    """What each rank does at each moment of a few steps (timing.Steps): compute, wait for the last rank,
    communicate."""
    arrivals, leaves, workers = steps.began("all-reduce"), steps.ended("all-reduce"), len(steps.moments)
    drawing, (axes,) = _axes(9, 0.7 + 0.6 * workers)
    last, begin = arrivals.max(axis=1), steps.began("load")
    middle = len(begin) // 2
    for rank in range(workers):
        for step in range(middle, middle + count):
            spans = (
                ("compute", begin[step, rank], arrivals[step, rank]),
                ("waiting", arrivals[step, rank], last[step]),
                ("communication", last[step], leaves[step, rank]),
                ("compute", leaves[step, rank], steps.ended("optimize")[step, rank]),
            )
            for part, start, end in spans:
                axes.barh(
                    rank, 1000 * (end - start), left=1000 * (start - begin[middle].min()), height=0.6, **_style(part)
                )
    axes.set(yticks=range(workers), yticklabels=[f"rank {rank}" for rank in range(workers)], xlabel="time [ms]")
    axes.invert_yaxis()
    for part in ("compute", "waiting", "communication"):
        axes.barh(0, 0, label=part, **_style(part))
    axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize="small", frameon=False)
    return picture(
        drawing, f"What {workers} ranks do during {count} steps: they compute, wait for the last rank, and communicate."
    )


def ranges(of_ranks, length, words):
    """When each rank was in which part of a step; of_ranks: rank -> part -> [(begin, length), ...] in ms; `length` of
    the axis in ms."""
    drawing, (axes,) = _axes(9, 0.9 + 0.5 * len(of_ranks))
    for row, parts in enumerate(of_ranks.values()):
        for part, bars in parts.items():
            begins, lengths = zip(*bars) if bars else ((), ())
            axes.barh(
                [row] * len(bars), lengths, left=begins, height=0.6, label=part if row == 0 else None, **_style(part)
            )
    axes.set(yticks=range(len(of_ranks)), yticklabels=list(of_ranks), xlabel="time [ms]", xlim=(0, length))
    axes.invert_yaxis()
    axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize="small", frameon=False)
    return picture(drawing, words)


def steps_compared(single, several):
    """Where a step's time goes with one worker and with several (timing.Steps of both), beside the time that would be
    ideal."""
    arrivals, leaves = several.began("all-reduce"), several.ended("all-reduce")
    waiting = (arrivals.max(axis=1, keepdims=True) - arrivals).mean(axis=0)
    communication = (leaves - arrivals.max(axis=1, keepdims=True)).mean(axis=0)
    rows = [("1 worker", {"compute": numpy.mean(single.of_steps())})]
    for rank in range(len(several.moments)):
        compute = numpy.mean(several.of_steps(rank)) - waiting[rank] - communication[rank]
        parts = {"compute": compute, "waiting": waiting[rank], "communication": communication[rank]}
        rows.append((f"{len(several.moments)} workers, rank {rank}", parts))
    drawing, (axes,) = _axes(8, 0.9 + 0.5 * len(rows))
    for row, (_, parts) in enumerate(rows):
        left = 0
        for part, seconds in parts.items():
            axes.barh(
                row, 1000 * seconds, left=1000 * left, height=0.6, label=part if row == 1 else None, **_style(part)
            )
            left += seconds
    axes.axvline(1000 * rows[0][1]["compute"], **IDEAL | {"label": None})
    axes.set(
        yticks=range(len(rows)),
        yticklabels=[name for name, _ in rows],
        xlabel="mean time of a step [ms]; dashed: ideal",
        xlim=(0, None),
    )
    axes.invert_yaxis()
    axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize="small", frameon=False)
    words = [
        f"{name}: " + ", ".join(f"{part} {1000 * value:.1f} ms" for part, value in parts.items())
        for name, parts in rows
    ]
    return picture(drawing, "Mean time of a step. " + "; ".join(words) + ".")


def _curves(axes, curves, what):
    for (name, curve), (colour, marker, line) in zip(curves.items(), SERIES):
        x = getattr(curve, what)
        axes.plot(x, 100 * curve.mean, color=colour, linestyle=line, marker=marker, markersize=4, label=name)
        axes.fill_between(
            x, 100 * curve.errors.min(axis=0), 100 * curve.errors.max(axis=0), color=colour, alpha=0.12, linewidth=0
        )
    axes.set(xlabel=what, ylabel="test error [%]", ylim=(0, 100))


def _final(curves):
    return ", ".join(f"{name}: {100 * curve.mean[-1]:.1f} %" for name, curve in curves.items())


def equal_epochs_and_updates(curves):
    """Test errors against epochs, and the same against updates (big_batches.Curve by name); bands: from the best seed
    to the worst."""
    drawing, (left, right) = _axes(9.5, 3.6, columns=2, sharey=True)
    _curves(left, curves, "epochs")
    _curves(right, curves, "updates")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    fewest = min(curve.epochs[-1] for curve in curves.values())
    left.axvline(fewest, color="0.3", linestyle="--", linewidth=1)
    left.text(fewest, 97, " equal epochs", va="top", fontsize="small")
    most = max(curve.updates[-1] for curve in curves.values())
    right.axvline(most, color="0.3", linestyle="--", linewidth=1)
    right.text(most, 97, "equal updates ", va="top", ha="right", fontsize="small")
    right.set_ylabel("")
    drawing.legend(
        *left.get_legend_handles_labels(),
        fontsize="small",
        frameon=False,
        loc="outside upper center",
        ncols=len(curves),
    )
    return picture(drawing, f"Test error against epochs and against updates; at the end {_final(curves)}.")


def rates_and_errors(curves):
    """Learning rate against epochs, and the test error that results (big_batches.Curve by name)."""
    drawing, (left, right) = _axes(9.5, 3.6, columns=2)
    for (name, curve), (colour, _, line) in zip(curves.items(), SERIES):
        updates = numpy.arange(len(curve.plan.rates)) * curve.epochs[-1] / curve.updates[-1]
        left.plot(updates, curve.plan.rates, color=colour, linestyle=line, label=name)
    left.set(xlabel="epochs", ylabel="learning rate", xlim=(0, None), ylim=(0, None))
    _curves(right, curves, "epochs")
    right.set_xlim(0, None)
    right.legend(fontsize="small", edgecolor="none")
    return picture(drawing, f"Learning rate and test error against epochs; at the end {_final(curves)}.")


def bars(values, xlabel, predicted=None, start=0):
    """A bar for each name, with its value in it; `predicted`: name -> the value to mark; `start`: where bars begin, 1
    for ratios."""
    predicted = predicted or {}
    drawing, (axes,) = _axes(7.5, 0.8 + 0.45 * len(values))
    largest = max([*values.values(), *predicted.values()])
    inside, all_ = 0.12 * (largest - start), "predicted"
    for row, (name, value) in enumerate(values.items()):
        axes.barh(row, value - start, left=start, height=0.55, **_style("compute"))
        fits = value - start > inside
        axes.text(value, row, f" {_short(value)} ", va="center", ha="right" if fits else "left", fontsize="small")
        if name in predicted:
            axes.plot([predicted[name]] * 2, [row - 0.4, row + 0.4], color=PREDICTED, linewidth=2.5, label=all_)
            axes.text(
                predicted[name], row - 0.42, f" {_short(predicted[name])}", va="top", color=PREDICTED, fontsize="small"
            )
            all_ = None
    axes.set(
        yticks=range(len(values)),
        yticklabels=list(values),
        xlabel=xlabel,
        xlim=(start, start + 1.12 * (largest - start)),
    )
    axes.invert_yaxis()
    if predicted:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize="small", frameon=False)
    marks = "".join(f"; predicted for {name} {_short(value)}" for name, value in predicted.items())
    return picture(
        drawing, f"{xlabel}: " + ", ".join(f"{name} {_short(value)}" for name, value in values.items()) + f"{marks}."
    )


def _short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def training(log):
    """Loss and accuracy after each epoch; log: of a handson.training.results.Result."""
    drawing, (left, right) = _axes(8, 2.8, columns=2)
    epochs = range(1, len(log) + 1)
    for axes, what in ((left, "loss"), (right, "accuracy")):
        for name, words, (colour, marker, line) in (
            (f"main/{what}", "training", SERIES[0]),
            (f"validation/main/{what}", "validation", SERIES[1]),
        ):
            axes.plot(
                epochs,
                [one.get(name) or numpy.nan for one in log],
                color=colour,
                marker=marker,
                linestyle=line,
                label=words,
            )
        axes.set(xlabel="epoch", ylabel=what, xticks=epochs, ylim=(0, None if what == "loss" else 1.03))
    left.legend(fontsize="small", edgecolor="none")
    last = ", ".join(f"{name} {value:.3g}" for name, value in log[-1].items() if "main" in name and value is not None)
    return picture(drawing, f"Loss and accuracy against epochs; after the last one {last}.")


def images(dataset, count=10):
    """The first images of a data set, each with its label."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(0.8 * count, 1.1), layout="constrained")
    for axes, number in zip(drawing.subplots(1, count), range(count)):
        axes.imshow(dataset.images[number, 0], cmap="gray_r")
        axes.set_title(dataset.classes[int(dataset.labels[number])], fontsize="medium")
        axes.axis("off")
    labels = ", ".join(dataset.classes[int(label)] for label in dataset.labels[:count])
    return picture(drawing, f"The first {count} images of the data set; their labels are {labels}.")


def classes_of_shards(splits):
    """How many images of each class each rank has; splits: name -> list of the labels of each rank's shard."""
    drawing, all_axes = _axes(8.5, 2.6, columns=len(splits), sharey=True)
    for axes, (name, shards) in zip(all_axes, splits.items()):
        width = 0.8 / len(shards)
        for rank, (labels, (colour, hatch)) in enumerate(zip(shards, RANKS)):
            counts = numpy.bincount(numpy.asarray(labels), minlength=10)
            place = numpy.arange(10) + (rank - (len(shards) - 1) / 2) * width
            axes.bar(
                place, counts, width, color=colour, hatch=hatch, edgecolor="0.25", linewidth=0.6, label=f"rank {rank}"
            )
        axes.set(title=name, xlabel="class", xticks=range(10))
    all_axes[0].set_ylabel("images")
    all_axes[-1].legend(fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return picture(
        drawing,
        f"How many images of each class each rank has when the data is split in these ways: {', '.join(splits)}.",
    )
