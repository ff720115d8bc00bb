"""Figures of notebook 06_model_parallel on sharded state: a table of ZeRO's stages that students fill in by hand, and
the collectives of a step by their names."""

import re

import numpy

from handson import figures
from handson.language import speak
from handson.profiling import analysis, spans
from handson.profiling.timeline import COMMUNICATION, COMPUTE, HOST, RANGE

SHARDS = "ABCD"  # shard A belongs to rank 0; each has 1 MB of parameters, and as much of each other kind of number
METHODS = ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3")  # stage n shards the last n of KINDS
KINDS = {"parameters": 1, "gradients": 1, "moments": 2}  # MB of a shard: Adam has two moments
RANKS = range(len(SHARDS))
WRONG = dict(edgecolor=figures.VERMILION, linewidth=2, zorder=3)
PHASES = {  # -> the name of its first range
    "forward": "FSDP::root_pre",
    "backward": "FSDP::pre_backward",
    "update": "Optimizer.step",
}
KINDS_OF_COLLECTIVES = {"allgather": "all-gather", "reducescatter": "reduce-scatter", "allreduce": "all-reduce"}


def zero_by_hand(table):
    """Print the first entry of a student's table that is wrong or missing, and return a picture of all entries.

    table: method -> kind -> for each rank the shards that it holds, such as {"ZeRO-1": {"moments": ["A", ...]}}.
    """
    problem, _ = _first_problem(table)
    speak(problem or "All entries are right.")
    return figures.picture(*draw_by_hand(table))


def draw_by_hand(table):
    """Return the figure of a student's table, a column per method with the sum of each rank, and its description."""
    problem, place = _first_problem(table)
    drawing, axes = figures.canvas(25, 13.6)
    sums = {}
    for column, method in enumerate(METHODS):
        left = 2.4 + 5.7 * column
        held = [
            sum(size * len(set(_entry(table, method, kind, rank))) for kind, size in KINDS.items()) for rank in RANKS
        ]
        sums[method] = f"{method} {', '.join(map(str, held))} MB"
        axes.text(left + 2, 13, method, ha="center", weight="bold")
        for number, shard in enumerate(SHARDS):
            axes.text(left + number + 0.5, 12.2, shard, ha="center", fontsize="small")
        for rank in RANKS:
            _draw_rank(axes, left, 11.9 - 2.6 * rank, [(kind, _entry(table, method, kind, rank)) for kind in KINDS])
            axes.text(left + 4.1, 10.7 - 2.6 * rank, f"{held[rank]} MB", va="center", fontsize="small")
            if place and place[0] == method and place[2] == rank:
                _draw_mark(axes, left, 11.9 - 2.6 * rank, place[1])
        right = all(_entry(table, method, kind, rank) == _right(method, kind, rank) for kind in KINDS for rank in RANKS)
        axes.text(
            left + 2, 1.1, f"formula: {_formula(method)}" if right else "formula: ?", ha="center", fontsize="small"
        )
    for rank in RANKS:
        axes.text(0.3, 10.7 - 2.6 * rank, f"rank {rank}", va="center")
    _legend(axes)
    return (
        drawing,
        f"Shards that each of 4 ranks holds: {'; '.join(sums.values())}. {problem or 'All entries are right.'}",
    )


def _entry(table, method, kind, rank):
    """Return the shards in an entry, sorted, or "" if there is no such entry."""
    try:
        return "".join(sorted(table[method][kind][rank].upper().replace(" ", "")))
    except (KeyError, IndexError, TypeError, AttributeError):
        return ""


def _right(method, kind, rank):
    sharded = list(KINDS)[len(KINDS) - METHODS.index(method) :]
    return SHARDS[rank] if kind in sharded else SHARDS


def _first_problem(table):
    """Return the first wrong entry as a sentence, and its (method, kind, rank); (None, None) if all are right."""
    for method in METHODS:
        for kind in KINDS:
            for rank in RANKS:
                if (found := _entry(table, method, kind, rank)) != (right := _right(method, kind, rank)):
                    return _problem(method, kind, rank, found, right), (method, kind, rank)
    return None, None


def _problem(method, kind, rank, found, right):
    where = f"{method}: the {kind} of rank {rank}"
    if not found:
        return f"{where} are still missing: write the shards that it holds."
    if unknown := set(found) - set(SHARDS) or {shard for shard in found if found.count(shard) > 1}:
        return f"{where} are {found!r}: write each of the letters {SHARDS} once at most, not {min(unknown)}."
    found, right = ", ".join(found), ", ".join(right)
    if len(right) == 1:
        return f"{where} are {found}, but {method} shards the {kind}: rank {rank} holds {right}."
    return f"{where} are {found}, but {method} does not shard the {kind}: rank {rank} holds {right}."


def _formula(method):
    """Return a rank's MB as a sum, for example "4 + 4 + 8 / 4 = 10 MB"."""
    parts = [(size, len(_right(method, kind, 0)) == 1) for kind, size in KINDS.items()]
    total = sum(size * (1 if sharded else len(SHARDS)) for size, sharded in parts)
    return f"{' + '.join(f'{4 * size} / 4' if sharded else f'{4 * size}' for size, sharded in parts)} = {total} MB"


def _lanes():
    """Return (kind, height of the lane above the rank's lower edge) from the top: moments have two lanes."""
    kinds = [kind for kind, size in KINDS.items() for _ in range(size)]
    return [(kind, 0.55 * (len(kinds) - number)) for number, kind in enumerate(kinds)]


def _draw_rank(axes, left, top, entries):
    from matplotlib.patches import Rectangle

    held = dict(entries)
    for kind, height in _lanes():
        for number, shard in enumerate(SHARDS):
            corner = left + number, top - 2.2 + height - 0.55
            empty = dict(facecolor="none", edgecolor="0.8", linestyle=":", linewidth=0.8)
            filled = figures.part("optimizer" if kind == "moments" else kind)
            axes.add_patch(Rectangle(corner, 0.92, 0.47, **(filled if shard in held[kind] else empty)))


def _draw_mark(axes, left, top, kind):
    """Frame the lanes of the first wrong entry."""
    from matplotlib.patches import Rectangle

    heights = [height for name, height in _lanes() if name == kind]
    low, high = top - 2.2 + min(heights) - 0.6, top - 2.2 + max(heights)
    axes.add_patch(Rectangle((left - 0.06, low), 4.04, high - low, facecolor="none", **WRONG))


def _legend(axes):
    from matplotlib.patches import Patch

    names = {"parameters": "parameters", "gradients": "gradients", "optimizer": "Adam's two moments"}
    handles = [Patch(**figures.part(part), label=name) for part, name in names.items()]
    handles.append(Patch(facecolor="none", label="first wrong or missing entry", **WRONG))
    axes.legend(handles=handles, loc="lower center", ncols=4, fontsize="small", frameon=False)


def collectives(runs):
    """Return the picture of one step of rank 0 in each recorded Run: a row for its computation, and one for each kind
    of collective. runs: name -> Run."""
    return figures.picture(*draw_collectives(runs))


def draw_collectives(runs):
    """Return the figure of `collectives`, all runs at one scale, and its description."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(9.5, 1.9 * len(runs) + 0.4), layout="constrained")
    words = []
    for axes, (name, run) in zip(drawing.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0], runs.items()):
        steps = analysis.common_steps(run)[0][:, 1:].tolist()
        begin, end = min(steps, key=lambda step: step[1] - step[0])  # the one that other programs disturb least
        timeline = run.timelines[0].between(begin, end)
        found = by_name(timeline, begin, end)
        rows = {"computation": _computation(timeline)} | found
        for row, (kind, moments) in enumerate(rows.items()):
            bars = [((a - begin) / 1e6, (b - a) / 1e6) for a, b in moments.clip(begin, end).tolist()]
            style = figures.part("communication") if row else figures.part("compute") | {"linewidth": 0}
            axes.broken_barh(bars, (row - 0.35, 0.7), **style)
        axes.set(yticks=range(len(rows)), yticklabels=list(rows), ylim=(len(rows) - 0.4, -0.6))
        axes.spines[["top", "right"]].set_visible(False)
        _draw_phases(axes, timeline, begin)
        counts = [f"{len(moments)} {kind}{'s' * (len(moments) != 1)}" for kind, moments in found.items()]
        words.append(f"{name}: {' and '.join(counts)} in a step")
        axes.set_title(words[-1], loc="left", fontsize="medium", pad=16)
    axes.set(xlabel="time in the step [ms]", xlim=(0, None))
    return drawing, f"Collectives of rank 0. {'; '.join(words)}."


def _computation(timeline):
    """Return the moments of computation. On a core, an operator of backward lasts until its hooks have returned, so
    FSDP's ranges are left out: in them the core waits for a collective, or copies its data."""
    fsdp = [number for number, name in enumerate(timeline.names) if name.startswith("FSDP::")]
    hooks = (timeline.kind == RANGE) & numpy.isin(timeline.name, fsdp)
    computes = timeline.spans(COMPUTE)
    return (
        computes
        if timeline.on_gpu
        else spans.without(computes, spans.union(timeline.begin[hooks], timeline.end[hooks]))
    )


def by_name(timeline, begin, end):
    """Return kind -> moments (begin, end) of the collectives in a step, such as "reduce-scatter".

    The name is that of the operator that starts the collective: gloo builds a reduce-scatter from an all-reduce.
    """
    inside = (timeline.begin >= begin) & (timeline.begin < end)
    events = numpy.flatnonzero(inside & (timeline.kind == COMMUNICATION))
    names = [timeline.names[timeline.name[event]] for event in events]
    started = [timeline.names[number] for number in timeline.name[inside & (timeline.kind == HOST)]]
    started = [name for name in started if name.startswith("c10d::")]
    found = {}
    for event, name in zip(events, started if len(started) == len(names) else names):
        found.setdefault(_kind(name), []).append((timeline.begin[event], timeline.end[event]))
    return {kind: numpy.array(moments) for kind, moments in found.items()}


def _kind(name):
    letters = re.sub("[^a-z]", "", name.lower())
    return next((kind for known, kind in KINDS_OF_COLLECTIVES.items() if known in letters), name)


def _draw_phases(axes, timeline, begin):
    """Mark the begin of forward, backward and the update by the ranges that PyTorch records."""
    events = numpy.flatnonzero((timeline.kind == RANGE) & (timeline.begin >= begin))
    ranges = [(timeline.begin[event], timeline.names[timeline.name[event]]) for event in events]
    for phase, mark in PHASES.items():
        if starts := [moment for moment, name in ranges if name.startswith(mark)]:
            at = (min(starts) - begin) / 1e6
            axes.axvline(at, color="black", linewidth=1, linestyle=(0, (3, 2)))
            place = dict(xycoords=("data", "axes fraction"), xytext=(2, 3), textcoords="offset points")
            axes.annotate(phase, (at, 1), fontsize="small", **place)
