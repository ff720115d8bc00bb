"""``python -m handson memory RUN...``: compare the use of each rank's GPU memory in a step with formulas, in a table
and a figure.

Runs with --gpu-memory have counted it (handson.pytorch.memory_counter), including those that ended because it was full.
Notebooks call `picture`.
"""

import math
from pathlib import Path

from handson import figures
from handson.errors import OneSentence
from handson.language import marked, speak, translated
from handson.sizes import bytes_of, words
from handson.training import gpu_memory
from handson.training.gpu_memory import PARTS
from handson.words import ljust, rjust, width

DRAWN = 8  # ranks in a figure
NAMES_ABOVE = 1.15  # height of the names of phases, in multiples of the drawn height: above the limit's line
MARGIN = 1.05  # length of the axis, in multiples of the longest step
ROOM_FOR_NAME = 0.13  # shortest phase with a name, as a share of the step
ROOM_FOR_LETTER = 0.02  # shortest phase with a letter
SHORT = {"forward": "F", "backward": "B"}
SHOW_LIMIT = 1.5  # multiples of the peak: a higher limit has no line, because the figure would become flat
MIB = 2**20


class NotCounted(OneSentence, ValueError):
    """The memory of a run cannot be shown."""


def report(outs, figure_path=None, predicted="", say=speak):
    """Read the runs in the folders `outs`, `say` the table line by line, and draw the figure: in the last of these
    folders, if `figure_path` is None. predicted: text for `parse`.

    Raises NotCounted or FigureError.
    """
    ranks = read(outs, parse(predicted))
    for line in table(ranks):
        say(line)
    drawing, description = draw(ranks)
    path = figures.place(figure_path, outs[-1], "memory.png")
    say(figures.told(figures.save(drawing, path, description)))


def picture(outs, predicted=None, ranks=None):
    """Return the figure for a notebook. predicted: the student's bytes for some of PARTS, by name; ranks: numbers of
    the ranks to draw, by default all. Raises NotCounted."""
    found = read(outs, predicted)
    return figures.picture(*draw([one for one in found if ranks is None or one[1]["rank"] in ranks]))


def parse(text):
    """Return the bytes in "parameters=1.5MB,activations=20MB" as a dictionary. Raises NotCounted."""
    found = {}
    for word in filter(None, text.split(",")):
        part, _, size = word.partition("=")
        try:
            found[part.strip()] = bytes_of(size)
        except ValueError:
            raise NotCounted(
                f"--predicted: {word.strip()!r} is not the size of a part: write it as in"
                " parameters=1.5MB,activations=20MB"
            ) from None
    return found


def read(outs, predicted=None):
    """Return (name, account) of every rank of the runs in the folders `outs`, as from gpu_memory.read, with `predicted`
    instead of formulas.

    Raises NotCounted.
    """
    if unknown := [part for part in predicted or {} if part not in PARTS]:
        raise NotCounted(f"there is no part {unknown[0]!r} to predict: the parts are {', '.join(PARTS)}")
    ranks = []
    for out in map(Path, outs):
        try:
            accounts = gpu_memory.read(out)
        except (OSError, ValueError) as error:
            raise NotCounted(str(error)) from None
        if not accounts:
            raise NotCounted(
                f"{out} has no memory_rank*.json, since its run did not count its memory: repeat the run with"
                " --gpu-memory unlimited, or with a size"
            )
        ranks += [
            (
                _name(out, account, len(outs), len(accounts)),
                account | {"predicted": account["predicted"] | (predicted or {})},
            )
            for account in accounts
        ]
    return ranks


def _name(out, account, runs, ranks):
    """Return the name of a rank among several runs or several ranks of a run: "ddp, rank 1" for the folder ddp_0, whose
    run has the first seed."""
    rank = f"rank {account['rank']}"
    if runs == 1:
        return rank
    run = out.name.removesuffix("_0").replace("_", " ")
    return run if ranks == 1 else f"{run}, {rank}"


def table(ranks):
    """Return the table as lines: for each rank the maximum of each part, the parts at the peak of their sum, and the
    prediction."""
    rows = [("MiB", *map(translated, (*PARTS, *marked(("together", "limit")))))]
    for name, account in ranks:
        peak, most, predicted = ([account[kind][part] for part in PARTS] for kind in ("peak", "most", "predicted"))
        rows.append(
            (
                translated(f"{name}: at its peak"),
                *map(_mb, peak),
                _mb(sum(peak)),
                "" if account["limit"] is None else _mb(account["limit"]),
            )
        )
        rows.append((translated("  most of each part"), *map(_mb, most), "", ""))
        rows.append(
            (translated("  predicted"), *map(_mb, predicted), "" if None in predicted else _mb(sum(predicted)), "")
        )
    widths = [max(map(width, column)) for column in zip(*rows)]
    lines = ["  ".join([ljust(row[0], widths[0]), *map(rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    lines.insert(1, "-" * max(map(width, lines)))
    lines += [
        f"{name} ended because its GPU was full: {words(account['asked'])} more did not fit."
        for name, account in ranks
        if account["asked"]
    ]
    return lines


def _mb(size):
    return "-" if size is None else f"{size / MIB:,.2f}"


def draw(ranks):
    """Return the figure and its description: for each rank its memory during a step, and its peak next to the maximum
    of each part and, where all parts are predicted, the prediction. All ranks have one scale."""
    from matplotlib.figure import Figure

    shown = ranks[:DRAWN]
    drawing = Figure(figsize=(10, 0.6 + 2.4 * len(shown)), layout="constrained")
    grid = drawing.subplots(len(shown), 2, squeeze=False, gridspec_kw={"width_ratios": (3, 2)}, sharey=True)
    for (name, account), (over_time, bars) in zip(shown, grid):
        over_time.sharex(grid[0][0])
        _draw_step(over_time, account)
        _draw_bars(bars, account)
        limit, highest = account["limit"], sum(account["peak"].values())
        for axes in (over_time, bars):
            if limit is not None and limit < SHOW_LIMIT * highest:
                axes.axhline(limit / MIB, color="black", linestyle="--", linewidth=1)
            axes.spines[["top", "right"]].set_visible(False)
        over_time.set(title=name if limit is None else f"{name}, of {words(limit)}", ylabel="memory [MiB]")
    if longest := max((account["step"][-1][0] for _, account in shown if account["step"]), default=0):
        grid[0][0].set_xlim(0, MARGIN * 1000 * longest)
    grid[0][0].set_ylim(0, NAMES_ABOVE * max(axes.dataLim.ymax for row in grid for axes in row))
    short = any(text.get_text() in SHORT.values() for row in grid for text in row[0].texts)
    grid[-1][0].set_xlabel("time in a step [ms]" + "; F: forward, B: backward" * short)
    handles = [_patch(part) for part in PARTS]
    drawing.legend(handles=handles, loc="outside upper center", ncols=len(PARTS), frameon=False)
    return drawing, "Memory of each rank's GPU over a step. " + " ".join(
        _sentence(name, account) for name, account in shown
    )


def _draw_step(axes, account):
    """Draw stacked areas over one step, and the names of its phases."""
    moments = account["step"]
    if not moments:
        axes.text(0.5, 0.5, "it ended before its first step", ha="center", transform=axes.transAxes)
        return
    times = [1000 * moment[0] for moment in moments]
    parts = [[moment[2 + number] / MIB for moment in moments] for number in range(len(PARTS))]
    for areas, part in zip(axes.stackplot(times, parts, step="post"), PARTS):
        areas.set(**figures.part(part) | {"linewidth": 0.3})
    phases = [phase for _, phase, *_ in moments]
    begins = [(times[at], phase) for at, phase in enumerate(phases) if not at or phase != phases[at - 1]]
    for (time, phase), (following, _) in zip(begins, [*begins[1:], (math.inf, "")]):
        axes.axvline(time, color="0.4", linestyle=":", linewidth=0.8)
        room = (following - time) / times[-1]  # a pipeline runs forward and backward many times per step
        name = phase if room > ROOM_FOR_NAME else SHORT.get(phase) if room > ROOM_FOR_LETTER else None
        if name:
            axes.annotate(
                name,
                (time, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -2),
                textcoords="offset points",
                va="top",
                fontsize="small",
                bbox=dict(facecolor="white", edgecolor="none", pad=0.5),
            )


def _draw_bars(axes, account):
    kinds = {marked("peak"): account["peak"], "most of\neach part": _most_in_step(account)}
    if None not in account["predicted"].values():  # if one part is missing, the bar would look like a wrong prediction
        kinds["predicted"] = account["predicted"]
    for place, sizes in enumerate(kinds.values()):
        bottom = 0
        for part in PARTS:
            size = sizes[part] / MIB
            axes.bar(place, size, bottom=bottom, width=0.6, **figures.part(part))
            bottom += size
    axes.set(xticks=range(len(kinds)), xticklabels=kinds)


def _most_in_step(account):
    """Return the maximum of each part during the step that the figure shows. Before the first step, FSDP has the whole
    parameters, which it then shards. Without a step: the maximum in the run."""
    if not account["step"]:
        return account["most"]
    return {part: max(moment[2 + number] for moment in account["step"]) for number, part in enumerate(PARTS)}


def _patch(part):
    from matplotlib.patches import Patch

    return Patch(**figures.part(part), label=part)


def _sentence(name, account):
    """Return the content of the figure for a rank, for the alternative text."""
    held = ", ".join(f"{part} {words(size)}" for part, size in account["peak"].items())
    return f"{name}: {words(sum(account['peak'].values()))} at its peak: {held}."
