"""Figure of notebook 05_communication: what runs of train_cntk.py did, side by side."""

import numpy

from handson.notebook.plots import _axes, picture
from handson.training import results


def runs(folders):
    """name -> Result, of name -> folder of results."""
    return {name: results.read(folder) for name, folder in folders.items()}


def show(runs):
    """Left the throughput of each run, right its loss after each epoch."""
    drawing, (left, right) = _axes(9, 2.6, columns=2)
    rates = [run.throughput for run in runs.values()]
    left.barh(range(len(runs)), rates, height=0.55, facecolor="#9ECAE1", edgecolor="0.25")
    left.set(yticks=range(len(runs)), yticklabels=list(runs), xlabel="throughput [images/s]", xlim=(0, None))
    left.invert_yaxis()
    for line, marker, (name, run) in zip(("-", "--", ":"), "os^", runs.items()):
        losses = [numpy.nan if row["main/loss"] is None else row["main/loss"] for row in run.log]
        right.plot(
            range(1, len(losses) + 1),
            losses,
            color="black",
            linestyle=line,
            marker=marker,
            markerfacecolor="white",
            label=name,
        )
    right.set(
        xlabel="epoch",
        ylabel="loss while training",
        ylim=(0, None),
        xticks=range(1, 1 + max(len(run.log) for run in runs.values())),
    )
    right.legend(fontsize="small", edgecolor="none")
    words = (
        f"{name}: {run.throughput:.0f} images/s, loss {run.log[-1]['main/loss']:.2f} in the last epoch"
        for name, run in runs.items()
    )
    return picture(drawing, "; ".join(words) + ".")
