"""Draw the timelines of runs one above the other, on one scale, as in the lecture; below them, the use of devices if it
is known."""

import re
from pathlib import Path

import numpy

from handson import figures
from handson.compare import note
from handson.profiling import analysis, rank_clocks, spans

WORDS = {
    "compute": "computation",
    "loading": "data loading",
    "copy": "copies",
    "communication": "communication",
    "waiting": "waiting for other ranks",
}
# each rank's lanes, from the top
LANES = {"device": ("compute", "loading", "copy"), "comm.": ("communication", "waiting")}
TRACK_AND_NUMBER = re.compile(r"(_pytorch|_chainer)?_profile(_\d+)?$")  # at the end of the name of a run's folder
SMALLEST = 1 / 1500  # share of the axis: shorter gaps and spans would be invisible


def timeline(runs, steps=3):
    """Return a matplotlib Figure for notebooks: `steps` steps of each Run, on one scale."""
    from matplotlib.figure import Figure

    windows = [_window(run, steps) for run in runs]
    longest = max(end - begin for begin, end in windows) / 1e6
    used = [run for run in runs if run.usage and run.usage["devices"]]
    rows = [2 * len(run.timelines) + 1 for run in runs] + [3] * 2 * len(used)
    drawing = Figure(figsize=(11, 0.9 + 0.33 * sum(rows) + 0.25 * len(rows)), layout="constrained")
    axes = drawing.subplots(len(rows), 1, height_ratios=rows, squeeze=False)[:, 0]
    shown = {}
    for below, run, window, name in zip(axes, runs, windows, names(runs)):
        _draw(below, run, window, shown)
        below.set_title(
            f"{name}: {analysis.verdict(run).sentence}", loc="left", fontsize="medium", parse_math=False, wrap=True
        )
        below.set_xlim(0, longest * 1.005)
        below.set_xlabel("time [ms]")
    for number, run in enumerate(used):
        draw_usage(*axes[len(runs) + 2 * number :][:2], run)
    handles = [shown[part] for part in WORDS if part in shown]
    drawing.legend(handles=handles, loc="outside upper center", ncols=len(handles), edgecolor="none", handlelength=2.5)
    note(drawing, [run.result for run in runs if run.result])
    return drawing


def names(runs):
    """Return the names of the runs' folders as words, such as "single GPU" for "single_gpu_pytorch_profile_15"; the
    folders' names if two runs would have the same words."""
    words = [TRACK_AND_NUMBER.sub("", run.name).replace("_", " ").replace("gpu", "GPU") for run in runs]
    return words if len(set(words)) == len(words) else [run.name for run in runs]


def figure(runs, path, steps=3):
    """Write `timeline` as `path` with the suffixes .png and .svg, and return both paths. Raises ProfileError or
    FigureError."""
    words = [f"{name}: {analysis.verdict(run).sentence}." for name, run in zip(names(runs), runs)]
    return figures.save(
        timeline(runs, steps), Path(path), "Timelines of the ranks of each run, one above the other. " + " ".join(words)
    )


def _window(run, steps):
    """Return the begin and end (ns) of the steps to draw: from the middle of the recording, without an evaluation in
    between if possible."""
    common = analysis.common_steps(run)
    steps = min(steps, len(common[0]))
    starts = sorted(range(len(common[0]) - steps + 1), key=lambda start: abs(2 * start + steps - len(common[0])))
    first = next((start for start in starts if numpy.ptp(common[0][start : start + steps, 0]) == steps - 1), starts[0])
    return min(of_rank[first, 1] for of_rank in common), max(
        of_rank[first : first + steps][-1, 2] for of_rank in common
    )


def _draw(axes, run, window, shown):
    """Draw one run: a lane for each rank's device, and below it a lane for its communication."""
    from matplotlib.patches import Patch

    begin, end = window
    collectives = rank_clocks.find(run.timelines)
    ticks = []
    for index, one in enumerate(run.timelines):
        moments, communication = analysis.parts_of(one.between(begin, end))
        moments["waiting"] = spans.either(*analysis.waiting(collectives, index).values())
        moments["communication"] = spans.without(communication, moments["waiting"])
        for lane, parts in enumerate(LANES.values()):
            row = 2 * index + lane + 0.1 * (1 - 2 * lane)
            for part in parts:
                style = figures.part(part) | dict(linewidth=0.4)
                visible = _visible(moments[part], begin, end)
                if len(visible):
                    axes.broken_barh([(a, b - a) for a, b in visible], (row - 0.4, 0.8), **style)
                    shown[part] = Patch(label=WORDS[part], **style)
            ticks.append((row, f"rank {one.rank} {list(LANES)[lane]}"))
        for _, step, after in one.steps():
            for moment in (step, after):
                if begin <= moment <= end:
                    axes.plot(
                        [(moment - begin) / 1e6] * 2,
                        [2 * index - 0.4, 2 * index + 1.4],
                        color="black",
                        linewidth=1.2,
                        linestyle=(0, (3, 2)),
                    )
    axes.set_yticks(*zip(*ticks))
    axes.set_ylim(2 * len(run.timelines) - 0.4, -0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _visible(moments, begin, end):
    """Return the spans within the window, in ms after its begin. Spans that are too close to be distinguished are
    merged."""
    inside = spans.both(moments, numpy.array([[begin, end]]))
    gap = int((end - begin) * SMALLEST)
    joined = spans.union(inside[:, 0], inside[:, 1] + gap)
    joined[:, 1] -= gap
    return ((joined - begin) / 1e6).tolist()


def draw_usage(above, below, run):
    """Draw, below the timelines, the utilisation of each device during the whole run, its memory, and which part of the
    run was recorded."""
    usage = run.usage
    for number, device in enumerate(usage["devices"]):
        style = figures.SERIES[number % len(figures.SERIES)] | dict(marker=".", label=device["name"])
        seconds = usage["interval"] * numpy.arange(1, len(device["utilisation"]) + 1)
        above.plot(seconds, device["utilisation"], **style)
        below.plot(seconds, numpy.array(device["memory"]) / 2**20, **style)
    begin, end = (moment / 1e9 - usage["begin"] for moment in _window(run, 10**6))
    memory = max((max(device["memory"], default=0) for device in usage["devices"]), default=0) / 2**20
    for axes, label, most in (above, "utilisation [%]", 108), (below, "memory [MiB]", 1.2 * memory + 1):
        axes.axvspan(begin, end, color="0.85", label="recorded")
        axes.set(ylabel=label, ylim=(0, most), xlim=(0, None))
        axes.spines[["top", "right"]].set_visible(False)
    above.legend(loc="lower left", fontsize="small", ncols=len(usage["devices"]) + 1, edgecolor="none", framealpha=0.8)
    below.set_xlabel(f"time since the start of {run.name} [s]", parse_math=False)
