"""Figures of notebook 06_model_parallel about a network that is split in its products."""

import numpy

from handson.figures import PREDICTED, SERIES
from handson.notebook.drawings import LAYERS, LINE, _canvas
from handson.notebook.plots import _axes, picture


def parts(ranks, width=1.7):
    """The matrices of a block as they stand in a product x @ W.T, (inputs, outputs), and the part of each that one of
    `ranks` ranks holds."""
    from matplotlib.patches import Rectangle

    drawing, axes = _canvas(23, 8.6)
    left, middle = 0.6, 4.6
    for name, high, across in (
        *((name, width, width) for name in ("query", "key", "value", "out")),
        ("up", width, 4 * width),
        ("down", 4 * width, width),
    ):
        by_columns = name not in ("out", "down")
        for rank in range(ranks):
            size = (across / ranks, high) if by_columns else (across, high / ranks)
            corner = (
                (left + rank * size[0], middle - high / 2)
                if by_columns
                else (left, middle + high / 2 - (rank + 1) * size[1])
            )
            axes.add_patch(
                Rectangle(
                    corner,
                    *size,
                    facecolor="white" if rank else LAYERS[-2],
                    edgecolor=LINE,
                    hatch="..." if rank else None,
                    linewidth=1,
                )
            )
        axes.text(left + across / 2, middle + high / 2 + 0.1, name, ha="center", va="bottom", fontsize=9.5)
        left += across + (1.6 if name == "out" else 0.6)
    axes.text(
        0.6, 0.5, "blue: what rank 0 holds. query, key, value, up: columns;\nout, down: rows", fontsize=9, va="center"
    )
    words = (
        f"The six matrices of a block, divided among {ranks} ranks: query, key, value and up in columns, out and down"
        " in rows."
    )
    return picture(drawing, words)


def seconds_of_a_step(run, batch):
    """The seconds of a step of a run, on average after the first epoch if there is another one. batch: the images of
    all ranks in a step."""
    return _after_first(run, "elapsed_time", batch)


def node_bytes(run, batch):
    """The bytes that a node has sent in a step, as `seconds_of_a_step`."""
    return _after_first(run, "bytes", batch)


def _after_first(run, name, batch):
    first, last = run.log[0] if len(run.log) > 1 else {"epoch": 0, name: 0}, run.log[-1]
    steps = -(-run.images // run.epochs // batch) * (last["epoch"] - first["epoch"])
    return (last[name] - first[name]) / steps


def steps(measured, predicted, fastest):
    """Seconds of a step against the rate of the network.

    measured: arrangement -> {rate in Mbit/s: seconds}; predicted(arrangement, rate) gives seconds, drawn as a line;
    fastest: the rate at which the prediction has taken its seconds of computing from what was measured.
    """
    drawing, (axes,) = _axes(7, 3.4)
    rates = sorted({rate for of_one in measured.values() for rate in of_one})
    between = numpy.geomspace(rates[0], rates[-1], 50)
    for (colour, marker, line), (arrangement, of_one) in zip(SERIES, measured.items()):
        axes.plot(
            between, [predicted(arrangement, rate) for rate in between], color=colour, linestyle=line, linewidth=1
        )
        axes.plot(
            list(of_one),
            list(of_one.values()),
            color=colour,
            marker=marker,
            markersize=7,
            markerfacecolor="white",
            linestyle="none",
            label=arrangement,
        )
    axes.plot([], [], color=PREDICTED, linestyle="none", label=f"lines: predicted from {fastest:g} Mbit/s")
    axes.set(
        xscale="log",
        xlabel="rate of the network between the nodes [Mbit/s]",
        ylabel="time of a step [s]",
        ylim=(0, None),
    )
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.legend(fontsize="small", edgecolor="none")
    shown = "; ".join(
        f"{name}: " + ", ".join(f"{of_one[rate]:.2f} s at {rate:g} Mbit/s" for rate in rates)
        for name, of_one in measured.items()
    )
    return picture(drawing, f"Time of a step against the network's rate. {shown}.")
