"""Figures of the runs of notebook 06_model_parallel: memory, pipelines, and a network with split matrix
multiplications."""

import json
from pathlib import Path

import numpy

from handson import figures
from handson.compare import note
from handson.figures import LAYERS, LINE, PREDICTED, SERIES, YOURS, part, picture
from handson.notebook.runs import all_of, of_a_step
from handson.pipelines import Operation, Timeline
from handson.training import gpu_memory

MIB = 2**20
STATE = ("parameters", "gradients", "optimizer")


def _most(run, part):
    """Return the peak MiB of a part over all ranks of a run. For parameters, this is their size at the peak of the sum,
    because FSDP divides them only after their creation."""
    return max(account["peak" if part == "parameters" else "most"][part] for account in run.memory) / MIB


def bytes_and_time(runs, predicted, seconds=None):
    """Draw the peak of the activations of each method, and the time of its step. runs: method -> [Result], whose
    tensors were counted; predicted, seconds: method -> bytes of activations, and seconds per step, drawn as lines."""
    drawing, left, right = figures.axes(9, 0.8 + 0.36 * len(runs), columns=2, sharey=True)
    sizes = {method: _most(run, "activations") for method, [run, *_] in runs.items()}
    milliseconds = {method: 1000 * of_a_step(run) for method, [run, *_] in runs.items()}
    predicted = {method: size / MIB for method, size in predicted.items()}
    figures.bars(left, sizes, "maximum of activations [MiB]; long line: predicted", predicted, **part("activations"))
    expected = {method: 1000 * time for method, time in (seconds or {}).items()}
    figures.bars(right, milliseconds, "time of a step [ms]" + "; long line: predicted" * bool(expected), expected)
    words = "; ".join(f"{method} {sizes[method]:.1f} MiB, {milliseconds[method]:.0f} ms" for method in runs)
    return picture(drawing, f"Activations and time of a step: {words}." + note(drawing, all_of(runs)))


def against_ranks(runs, kinds, predicted):
    """Draw the parameters, gradients and optimizer state per rank against the number of ranks, and the optimizer state
    separately, with a line at the size of all parameters.

    runs: ranks -> method -> [Result]; kinds: method -> the kind for `predicted`; predicted(kind, ranks) returns the
    student's bytes, which are drawn as lines.
    """
    drawing, left, right = figures.axes(10, 3.6, columns=2)
    ranks, together, alone = sorted(runs), {}, {}
    for method in kinds:
        found = [[_most(runs[number][method][0], part) for part in STATE] for number in ranks]
        together[method], alone[method] = [sum(parts) for parts in found], [parts[-1] for parts in found]
    expected = {method: [predicted(kind, number) / MIB for number in ranks] for method, kind in kinds.items()}
    figures.bars_beside(left, together, expected)
    figures.bars_beside(right, alone)
    whole = _most(next(iter(runs[ranks[0]].values()))[0], "parameters")
    right.axhline(whole, color="0.3", linestyle="--", linewidth=1, label="all parameters")
    left.set(ylabel="maximum per rank [MiB]")
    titles = "parameters + gradients + optimizer; lines: predicted", "only the optimizer's state"
    for axes, title in zip((left, right), titles):
        axes.set(xlabel="ranks", xticks=range(len(ranks)), xticklabels=ranks)
        axes.set_title(title, fontsize="medium")
    drawing.legend(*right.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)

    def in_words(sizes):
        return ", ".join(f"{size:.1f}" for size in sizes)

    words = "; ".join(
        f"{method} {in_words(together[method])} MiB, of which optimizer {in_words(alone[method])} MiB"
        for method in kinds
    )
    return picture(drawing, f"With {', '.join(map(str, ranks))} ranks: {words}.")


def timeline(folder):
    """Return the Timeline, in milliseconds, of the step that a run of train_pipeline.py has measured. `bubble` is its
    idle share."""
    found = json.loads(Path(folder, "pipeline.json").read_text())
    first = min(begin for _, _, begin, _ in found["operations"])
    operations = [
        Operation(stage, name, 1000 * (begin - first), 1000 * (end - first))
        for stage, name, begin, end in found["operations"]
    ]
    return Timeline(found["schedule"], operations, "ms")


def order(folder):
    """Return the schedule of a run of train_pipeline.py: the operations of each stage."""
    return json.loads(Path(folder, "pipeline.json").read_text())["schedule"]


def throughputs(runs, allowed, expected=None):
    """Draw the throughput of each method. runs: method -> [Result of each seed], the run with one process first;
    allowed: method -> the speed-up that its bubble allows, drawn as a line; expected: the speed-up that the student
    expects."""
    rates = {method: [run.throughput for run in of_method] for method, of_method in runs.items()}
    one = numpy.median(next(iter(rates.values())))
    drawing, axes = figures.axes(7, 0.8 + 0.4 * len(rates))
    xlabel = "throughput [images/s]" + "; long lines: what the bubble allows" * bool(allowed)
    figures.bars(axes, rates, xlabel, {method: one * times for method, times in allowed.items()})
    if expected:
        axes.axvline(one * expected, **YOURS, label=f"you expect {expected:g} times one process")
        figures.legend_above(axes)
    medians = {method: numpy.median(of_method) for method, of_method in rates.items()}
    words = ", ".join(f"{method} {rate:.0f} images/s ({rate / one:.2f} times)" for method, rate in medians.items())
    return picture(drawing, f"Throughput: {words}." + note(drawing, all_of(runs)))


def held(folder):
    """Return the peak bytes of activations on each rank of a run with --gpu-memory, as a list. Raises ValueError or
    OSError."""
    return [account["most"]["activations"] for account in gpu_memory.read(Path(folder))]


def activations(folders, held_bytes, stages, micro_batches):
    """Draw the peak of the activations of each stage with GPipe and with 1F1B, and the peak of 1F1B that `held_bytes`
    predicts from GPipe's.

    folders: {"gpipe": the folder of its run, "1f1b": ...}; held_bytes: the student's function.
    """
    found = {schedule: held(folder) for schedule, folder in folders.items()}
    predicted = [
        held_bytes("1f1b", stage, stages, micro_batches, found["gpipe"][stage] / micro_batches)
        for stage in range(stages)
    ]
    gpipe, ours, predicted = ([size / MIB for size in sizes] for sizes in (found["gpipe"], found["1f1b"], predicted))
    drawing, axes = figures.axes(7, 3)
    figures.bars_beside(axes, {"gpipe": gpipe, "1f1b": ours}, {"1f1b": predicted})
    axes.plot([], [], color=PREDICTED, linewidth=2.5, label="1f1b, predicted")
    axes.set(xticks=range(stages), xticklabels=[f"stage {stage}" for stage in range(stages)])
    axes.set(ylabel="activations held [MiB]", ylim=(0, 1.2 * max(gpipe)))
    axes.legend(fontsize="small", edgecolor="none", loc="upper right", ncols=3)
    words = "; ".join(
        f"stage {stage}: GPipe {gpipe[stage]:.1f}, 1F1B {ours[stage]:.1f}, predicted {predicted[stage]:.1f}"
        for stage in range(stages)
    )
    return picture(drawing, f"The most activations that each stage has held, in MiB. {words}.")


def split_products(ranks, width=1.7):
    """Draw the matrices of a block as factors of x @ W.T, (inputs, outputs), and the part of each matrix that one of
    `ranks` ranks holds."""
    from matplotlib.patches import Rectangle

    drawing, axes = figures.canvas(23, 8.6)
    left, middle = 0.6, 4.6
    by_columns = dict.fromkeys(("query", "key", "value"), (width, width)) | {"up": (width, 4 * width)}
    by_rows = {"out": (width, width), "down": (4 * width, width)}
    for name in ("query", "key", "value", "out", "up", "down"):
        high, across = (by_columns | by_rows)[name]
        top = middle + high / 2
        for rank in range(ranks):
            size, corner = (across, high / ranks), (left, top - (rank + 1) * high / ranks)
            if name in by_columns:
                size, corner = (across / ranks, high), (left + rank * across / ranks, middle - high / 2)
            style = dict(facecolor="white", hatch="...") if rank else dict(facecolor=LAYERS[-2])
            axes.add_patch(Rectangle(corner, *size, edgecolor=LINE, linewidth=1, **style))
        axes.text(left + across / 2, top + 0.1, name, ha="center", va="bottom", fontsize=9.5)
        axes.text(left + across / 2, middle - high / 2 - 0.1, "outputs", ha="center", va="top", fontsize=7.5)
        axes.text(left - 0.1, middle, "inputs", ha="right", va="center", rotation=90, fontsize=7.5)
        left += across + (1.6 if name == "out" else 0.6)
    words = "blue: what rank 0 holds\nquery, key, value, up: columns; out, down: rows"
    axes.text(0.6, 0.5, words, fontsize=9, va="center")
    words = (
        f"The six matrices of a block, divided among {ranks} ranks: query, key, value and up in columns, out and down"
        " in rows."
    )
    return picture(drawing, words)


def steps(measured, predicted, fastest):
    """Draw the seconds per step against the rate of the network.

    measured: arrangement -> {rate in Mbit/s: seconds}; predicted(arrangement, rate) returns seconds, drawn as a line;
    fastest: the rate whose measurement gave the prediction its computing time.
    """
    drawing, axes = figures.axes(7, 3.4)
    rates = sorted({rate for of_one in measured.values() for rate in of_one})
    between = numpy.geomspace(rates[0], rates[-1], 50)
    for style, (arrangement, of_one) in zip(SERIES, measured.items()):
        expected = [predicted(arrangement, rate) for rate in between]
        axes.plot(between, expected, **style | {"marker": "", "linewidth": 1})
        points = style | {"linestyle": "none", "markersize": 7}
        axes.plot(list(of_one), list(of_one.values()), **points, label=arrangement)
    axes.plot([], [], linestyle="none", label=f"lines: predicted from {fastest:g} Mbit/s")
    axes.set(xscale="log", xlabel="rate of the network between the nodes [Mbit/s]")
    axes.set(ylabel="time of a step [s]", ylim=(0, None))
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.legend(fontsize="small", edgecolor="none")
    shown = "; ".join(
        f"{name}: " + ", ".join(f"{of_one[rate]:.2f} s at {rate:g} Mbit/s" for rate in rates)
        for name, of_one in measured.items()
    )
    return picture(drawing, f"Time of a step against the network's rate. {shown}.")
