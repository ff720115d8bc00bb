"""Figures of notebook 06_model_parallel about pipelines: what train_pipeline.py has measured, beside what formulas
say."""

import json
from pathlib import Path

import numpy

from handson.notebook.plots import _axes, picture
from handson.pipelines import Operation, Timeline
from handson.training import gpu_memory

MB = 2**20


def measured(folder):
    """The Timeline of the step that a run of train_pipeline.py has measured, in milliseconds; `bubble` is its idle
    share."""
    found = json.loads(Path(folder, "pipeline.json").read_text())
    operations = [Operation(stage, name, 1000 * begin, 1000 * end) for stage, name, begin, end in found["operations"]]
    first = min(operation.begin for operation in operations)
    return Timeline(
        found["schedule"], [one._replace(begin=one.begin - first, end=one.end - first) for one in operations], "ms"
    )


def throughputs(runs, allowed):
    """Bars of the throughput of each method. runs: method -> [Result of each seed], first that of one process; allowed:
    method -> how many times the throughput of one process its bubble allows, drawn as a line."""
    rates = {method: [run.throughput for run in of_method] for method, of_method in runs.items()}
    one = numpy.median(next(iter(rates.values())))
    drawing, (axes,) = _axes(7, 0.8 + 0.4 * len(rates))
    for place, (method, of_method) in enumerate(rates.items()):
        axes.barh(place, numpy.median(of_method), height=0.55, facecolor="#9ECAE1", edgecolor="0.25")
        axes.plot(of_method, [place] * len(of_method), "k|", markersize=9)
        if method in allowed:
            axes.plot(
                one * allowed[method],
                place,
                color="#D55E00",
                marker="|",
                markersize=24,
                markeredgewidth=2,
                linestyle="none",
            )
    axes.set(
        yticks=range(len(rates)),
        yticklabels=list(rates),
        xlabel="throughput [images/s]; the long line: what the bubble allows",
        xlim=(0, None),
    )
    axes.invert_yaxis()
    words = ", ".join(
        f"{method} {numpy.median(of_method):.0f} images/s ({numpy.median(of_method) / one:.2f} times)"
        for method, of_method in rates.items()
    )
    return picture(drawing, f"Throughput: {words}.")


def held(folder):
    """The most bytes of activations that each rank of a run with --gpu-memory has held, as a list. Raises ValueError or
    OSError."""
    return [account["most"]["activations"] for account in gpu_memory.read(Path(folder))]


def activations(folders, held_bytes, stages, micro_batches):
    """Bars of the activations that each stage has held, with GPipe and with 1F1B, and what `held_bytes` predicts for
    1F1B from those with GPipe.

    folders: {"gpipe": the folder of its run, "1f1b": ...}; held_bytes: the student's function.
    """
    found = {schedule: held(folder) for schedule, folder in folders.items()}
    of_one = [size / micro_batches for size in found["gpipe"]]
    predicted = [held_bytes("1f1b", stage, stages, micro_batches, of_one[stage]) for stage in range(stages)]
    drawing, (axes,) = _axes(7, 3)
    for number, (schedule, (shade, hatch)) in enumerate(zip(("gpipe", "1f1b"), (("0.35", ""), ("0.85", "///")))):
        places = [stage + 0.4 * number - 0.2 for stage in range(stages)]
        axes.bar(
            places,
            [size / MB for size in found[schedule]],
            width=0.4,
            facecolor=shade,
            edgecolor="0.25",
            hatch=hatch,
            label=schedule,
        )
    axes.plot(
        [stage + 0.2 for stage in range(stages)],
        [size / MB for size in predicted],
        color="#D55E00",
        marker="_",
        markersize=26,
        markeredgewidth=2,
        linestyle="none",
        label="1f1b, predicted",
    )
    axes.set(
        xticks=range(stages),
        xticklabels=[f"stage {stage}" for stage in range(stages)],
        ylabel="activations held [MB]",
        ylim=(0, 1.2 * max(found["gpipe"]) / MB),
    )
    axes.legend(fontsize="small", edgecolor="none", loc="upper right", ncols=3)
    words = [
        f"stage {stage}: GPipe {found['gpipe'][stage] / MB:.1f}, 1F1B {found['1f1b'][stage] / MB:.1f}, predicted"
        f" {predicted[stage] / MB:.1f}"
        for stage in range(stages)
    ]
    return picture(drawing, f"The most activations that each stage has held, in MB. {'; '.join(words)}.")
