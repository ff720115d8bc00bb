"""Figures of notebook 06_model_parallel about memory: what runs with --gpu-memory have counted, beside what formulas say."""

from handson.notebook.communication import rate
from handson.notebook.plots import _axes, picture
from handson.training.gpu_memory import PARTS

MB = 2**20
NETWORK = ("parameters", "gradients", "optimizer")
STYLES = {"ddp": ("black", "o", "-"), "zero": ("#D55E00", "s", "-"), "torch-zero": ("#E69F00", "D", "--"), "fsdp": ("#0072B2", "^", "-.")}


def step_seconds(run):
    """Seconds of a step of a run, on average."""
    return run.workers * run.batchsize / rate(run)


def most(run, *parts):
    """The most bytes that any rank of a run has held of each of some parts, added up."""
    return max(sum(account["most"][part] for part in parts or PARTS) for account in run.memory)


def peak(run):
    """The most bytes that any rank of a run has had in use."""
    return max(sum(account["peak"].values()) for account in run.memory)


def bytes_against_time(runs, predicted=None):
    """The most activations of each method against the time of a step. runs: method -> [Result], which have counted; predicted: method -> bytes
    of activations, drawn as a line."""
    drawing, (axes,) = _axes(7.5, 3.8)
    words = []
    for method, [run, *_] in runs.items():
        seconds, size = step_seconds(run), most(run, "activations")
        axes.plot(1000 * seconds, size / MB, color="black", marker="o", markersize=6, markerfacecolor="#9ECAE1")
        axes.annotate(method, (1000 * seconds, size / MB), xytext=(7, 4), textcoords="offset points", fontsize="small")
        if method in (predicted or {}):
            axes.plot(1000 * seconds, predicted[method] / MB, color="#D55E00", marker="_", markersize=22, markeredgewidth=2, linestyle="none")
        words.append(f"{method} {size / MB:.1f} MB, {1000 * seconds:.0f} ms")
    axes.set(xlabel="time of a step [ms]; line: predicted memory", ylabel="most activations [MB]", ylim=(0, None))
    axes.margins(x=0.3)
    return picture(drawing, f"Activations and time of a step: {'; '.join(words)}.")


def against_ranks(runs, kinds, predicted):
    """Parameters, gradients and optimizer state of a rank against the number of ranks, and the optimizer state alone.

    runs: ranks -> method -> [Result]; kinds: method -> the kind for `predicted`; predicted(kind, ranks): the student's bytes, drawn as lines.
    """
    drawing, (left, right) = _axes(10, 3.6, columns=2)
    numbers, words = sorted(runs), []
    for method, kind in kinds.items():
        colour, marker, line = STYLES[method]
        found = {parts: [most(runs[ranks][method][0], *parts) / MB for ranks in numbers] for parts in (NETWORK, ("optimizer",))}
        for axes, parts in ((left, NETWORK), (right, ("optimizer",))):
            axes.plot(numbers, found[parts], color=colour, marker=marker, markerfacecolor="white", linestyle="none", label=method)
        left.plot(numbers, [predicted(kind, ranks) / MB for ranks in numbers], color=colour, linestyle=line, linewidth=1)
        words.append(f"{method} {', '.join(f'{size:.1f}' for size in found[NETWORK])} MB, of which optimizer {', '.join(f'{size:.1f}' for size in found[('optimizer',)])} MB")
    left.set(title="parameters + gradients + optimizer; lines: predicted", ylabel="most on a rank [MB]")
    right.set(title="optimizer alone")
    for axes in (left, right):
        axes.set(xlabel="ranks", ylim=(0, None), xticks=numbers)
    left.title.set_fontsize("medium")
    right.title.set_fontsize("medium")
    right.legend(fontsize="small", edgecolor="none")
    return picture(drawing, f"With {', '.join(map(str, numbers))} ranks: {'; '.join(words)}.")
