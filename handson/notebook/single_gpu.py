"""Figures of notebook 01_single_gpu: each function draws a measurement."""

import statistics

from handson import figures
from handson.figures import IDEAL, PARTS, part, picture


def images(dataset, count=10):
    """Draw the first images of a data set, each with its label."""
    drawing, *all_axes = figures.axes(0.8 * count, 1.1, columns=count)
    labels = [dataset.classes[int(label)] for label in dataset.labels[:count]]
    for axes, image, label in zip(all_axes, dataset.images, labels):
        axes.imshow(image[0], cmap="gray_r")
        axes.set_title(label, fontsize="medium")
        axes.axis("off")
    return picture(drawing, f"The first {count} images of the data set; their labels are {', '.join(labels)}.")


def parts_of_step(seconds, parts=("forward", "backward", "optimize"), predicted=None):
    """Draw a bar for the median time of each part of a step, with a mark for every step. seconds: part -> the seconds
    in each step; predicted: how many times as long as forward the student expects backward to take."""
    drawing, axes = figures.axes(6, 2.1 if predicted is None else 2.4)
    milliseconds = {part: [1000 * one for one in seconds[part]] for part in parts}
    colours, hatches = zip(*(PARTS[part] for part in parts))
    due = {} if predicted is None else {"backward": predicted * statistics.median(milliseconds["forward"])}
    figures.bars(axes, milliseconds, "time in a step [ms]; a mark for every step", due, color=colours, hatch=hatches)
    words = ""
    if due:
        axes.plot([], [], color=figures.PREDICTED, linewidth=2.5, label=f"predicted: {predicted:g} times forward")
        figures.legend_above(axes)
        words = f"; predicted for backward {due['backward']:.1f} ms"
    return picture(drawing, f"Median time in a step: {figures.medians(milliseconds, '{:.1f} ms')}{words}.")


def throughputs(rates):
    """Draw the throughput against the batch size. rates: batch size -> images/s."""
    drawing, axes = figures.axes(6, 3)
    sizes, best = sorted(rates), max(rates.values())
    axes.plot(sizes, [rates[size] for size in sizes], color="black", marker="o", markerfacecolor="white")
    axes.axhline(best, **IDEAL | {"label": None})
    at = dict(xycoords=("axes fraction", "data"), xytext=(4, 3), textcoords="offset points")
    axes.annotate("best", (0, best), color="0.3", **at)
    axes.set(xscale="log", xlabel="batch size [images]", ylabel="throughput [images/s]", ylim=(0, 1.15 * best))
    axes.set_xticks(sizes, map(str, sizes))
    axes.minorticks_off()
    words = ", ".join(f"{size}: {rates[size]:.0f} images/s" for size in sizes)
    return picture(drawing, f"Throughput against batch size: {words}.")


def epoch(seconds):
    """Draw the parts of an epoch as one bar. seconds: part -> seconds."""
    drawing, axes = figures.axes(7.5, 1.9)
    total = sum(seconds.values())
    for name, [(begin, length)] in figures.one_after_the_other(seconds).items():
        axes.barh(0, length, left=begin, height=0.5, label=f"{name} {100 * length / total:.0f} %", **part(name))
    axes.set(yticks=[], xlabel="time of one epoch [s]", xlim=(0, total), ylim=(-0.35, 0.35))
    figures.legend_above(axes, ncols=len(seconds), handlelength=1.2, columnspacing=1)
    return picture(drawing, f"An epoch: {', '.join(f'{name} {length:.2f} s' for name, length in seconds.items())}.")
