"""Figures of notebook 06_model_parallel about memory: what runs with --gpu-memory have counted, beside what formulas
say."""

from handson.notebook.communication import rate
from handson.notebook.plots import _axes, picture

MB = 2**20
STYLES = {  # brightness and hatching differ as well as colour
    "ddp": dict(facecolor="0.55", hatch=""),
    "zero": dict(facecolor="#E69F00", hatch="///"),
    "torch-zero": dict(facecolor="#F7E7A6", hatch="..."),
    "fsdp": dict(facecolor="#9ECAE1", hatch="xxx"),
}
PREDICTED = dict(color="#D55E00", linestyle="none", markeredgewidth=2.5)
BAR = 0.2  # the width of a bar of `against_ranks`, of the distance between two numbers of ranks


def step_seconds(run):
    """Seconds of a step of a run, on average."""
    return run.workers * run.batchsize / rate(run)


def most(run, part):
    """The most bytes of a part that any rank of a run has held. Parameters: at the fullest moment, since FSDP divides
    them after they were made."""
    return max(account["peak" if part == "parameters" else "most"][part] for account in run.memory)


def bytes_and_time(runs, predicted=None):
    """The most activations of each method, and the time of its step. runs: method -> [Result], which have counted;
    predicted: method -> bytes of activations, drawn as a line."""
    drawing, (left, right) = _axes(9, 0.8 + 0.36 * len(runs), columns=2, sharey=True)
    words = []
    for place, (method, [run, *_]) in enumerate(runs.items()):
        seconds, size = step_seconds(run), most(run, "activations")
        left.barh(place, size / MB, height=0.55, facecolor="#F7E7A6", edgecolor="0.25", hatch="...")
        right.barh(place, 1000 * seconds, height=0.55, facecolor="#9ECAE1", edgecolor="0.25")
        if method in (predicted or {}):
            left.plot(predicted[method] / MB, place, marker="|", markersize=22, **PREDICTED)
        words.append(f"{method} {size / MB:.1f} MB, {1000 * seconds:.0f} ms")
    left.set(
        yticks=range(len(runs)),
        yticklabels=list(runs),
        xlabel="most activations [MB]; long line: predicted",
        xlim=(0, None),
    )
    right.set(xlabel="time of a step [ms]", xlim=(0, None))
    left.invert_yaxis()
    return picture(drawing, f"Activations and time of a step: {'; '.join(words)}.")


def against_ranks(runs, kinds, predicted):
    """Parameters, gradients and optimizer state of a rank for each number of ranks, and the optimizer's state alone.

    runs: ranks -> method -> [Result]; kinds: method -> the kind for `predicted`; predicted(kind, ranks): the student's
    bytes, drawn as lines.
    """
    drawing, (left, right) = _axes(10, 3.6, columns=2)
    numbers, words = sorted(runs), []
    for place, (method, kind) in enumerate(kinds.items()):
        at = [number + BAR * (place - (len(kinds) - 1) / 2) for number in range(len(numbers))]
        found = [
            [most(runs[ranks][method][0], part) / MB for ranks in numbers]
            for part in ("parameters", "gradients", "optimizer")
        ]
        together = [sum(parts) for parts in zip(*found)]
        for axes, sizes in (left, together), (right, found[-1]):
            axes.bar(at, sizes, width=BAR, edgecolor="0.25", label=method, **STYLES[method])
        left.plot(at, [predicted(kind, ranks) / MB for ranks in numbers], marker="_", markersize=16, **PREDICTED)
        shown, alone = (", ".join(f"{size:.1f}" for size in sizes) for sizes in (together, found[-1]))
        words.append(f"{method} {shown} MB, of which optimizer {alone} MB")
    left.set(ylabel="most on a rank [MB]")
    for axes, title in (
        (left, "parameters + gradients + optimizer; lines: predicted"),
        (right, "optimizer's state alone"),
    ):
        axes.set(xlabel="ranks", xticks=range(len(numbers)), xticklabels=numbers)
        axes.set_title(title, fontsize="medium")
    right.legend(fontsize="small", edgecolor="none")
    return picture(drawing, f"With {', '.join(map(str, numbers))} ranks: {'; '.join(words)}.")
