"""The drawings of the book's chapters: `write` makes all of them. Those of the notebooks are in handson/notebook."""

import math
from pathlib import Path

import matplotlib

from book import moving
from handson import figures
from handson.labels import font_of
from handson.language import ENGLISH, chosen, marked
from handson.notebook import drawings
from handson.pipelines import simulate

RANKS = 8
ALPHA, BANDWIDTH = 1e-4, 350e6 / 8  # seconds for a message of no bytes; bytes a second
GRADIENT = (0.8, -0.3, 0.1, -0.6, 0.4, -0.2)


def write(folder, phrase=lambda text: text):
    """Write all drawings into `folder`; phrase: translates what stands in them into the user's language. Without a font
    for it, they stay English."""
    folder, style = Path(folder), {"svg.hashsalt": "handson"}
    folder.mkdir(parents=True, exist_ok=True)
    if (language := chosen()) != ENGLISH:
        if font := font_of(language):
            style["font.family"] = [*matplotlib.rcParams["font.family"], font]
        else:
            phrase = str
    for name in ("data_parallel", "model_parallel", "all_reduce"):
        (folder / f"{name}.png").write_bytes(getattr(drawings, name)().data)
    for draw in (sharding, alpha_beta, one_bit, pipeline, ring):
        with matplotlib.rc_context(style):
            drawing, path = draw(phrase), folder / f"{draw.__name__}.svg"
            drawing.savefig(path, metadata={"Date": None}, transparent=True)


def sharding(phrase):
    """Draw the bytes for each parameter on each of 8 ranks, with Adam in float32."""
    kinds = {
        "data parallel": (4, 4, 8),
        "ZeRO stage 1": (4, 4, 8 / RANKS),
        "ZeRO stage 2": (4, 4 / RANKS, 8 / RANKS),
        "ZeRO stage 3, FSDP": (4 / RANKS, 4 / RANKS, 8 / RANKS),
    }
    drawing, axes = figures.axes(7.5, 2.8)
    for row, parts in enumerate(kinds.values()):
        left = 0
        for name, size in zip(("parameters", "gradients", marked("optimizer")), parts):
            axes.barh(row, size, left=left, height=0.6, label=None if row else phrase(name), **figures.part(name))
            left += size
        axes.text(left + 0.2, row, f"{left:g}", va="center")
    axes.set(yticks=range(len(kinds)), yticklabels=list(map(phrase, kinds)))
    axes.set(xlabel=phrase("bytes for each parameter, on each of 8 ranks"))
    axes.set(xlim=(0, 17.5))
    axes.invert_yaxis()
    figures.legend_above(axes)
    return drawing


def alpha_beta(phrase):
    """Draw the time of three all-reduces among 8 ranks against the size of the message, by the alpha-beta model."""
    sizes = [2**power for power in range(6, 26)]
    ways = {
        "naive": lambda size: 2 * (RANKS - 1) * (ALPHA + size / BANDWIDTH),
        "ring": lambda size: 2 * (RANKS - 1) * (ALPHA + size / RANKS / BANDWIDTH),
        "doubling": lambda size: math.log2(RANKS) * (ALPHA + size / BANDWIDTH),
    }
    drawing, axes = figures.axes(7.5, 3.6)
    for (name, seconds), style in zip(ways.items(), figures.SERIES):
        axes.plot(sizes, [1000 * seconds(size) for size in sizes], label=phrase(name), markersize=4, **style)
    axes.set(xscale="log", yscale="log", xlabel=phrase("size of the message [bytes]"))
    axes.set(ylabel=phrase("time of an all-reduce [ms]"))
    figures.legend_above(axes)
    return drawing


def one_bit(phrase):
    """Draw a gradient, the signs that are sent of it, and the residual that stays."""
    drawing, *columns = figures.axes(9, 2.6, 3)
    size = sum(map(abs, GRADIENT)) / len(GRADIENT)
    sent = [math.copysign(size, one) for one in GRADIENT]
    shown = {
        "the gradient: 32 bits each": (GRADIENT, figures.PALE_BLUE),
        "sent: a sign each, and one size": (sent, figures.ORANGE),
        "the residual, added next time": ([one - two for one, two in zip(GRADIENT, sent)], figures.YELLOW),
    }
    for axes, (title, (values, colour)) in zip(columns, shown.items()):
        axes.bar(range(len(values)), values, color=colour, edgecolor="0.25")
        axes.axhline(0, color="0.3", linewidth=1)
        axes.set(ylim=(-1, 1), xticks=[])
        axes.set_title(phrase(title), fontsize="medium", loc="left")
    return drawing


def pipeline(phrase):
    """Draw the picture that replaces the moving figure of pipelines where scripts cannot run."""
    orders = moving.orders()
    schedule = [orders["one_forward_one_backward"](stage, 4, 8) for stage in range(4)]
    return simulate(schedule).draw(phrase("1F1B, 4 stages, 8 micro-batches"))[0]


def ring(phrase):
    """Draw the picture that replaces the moving figure of the ring where scripts cannot run."""
    moments = moving.ring(4)
    drawing, axes = figures.canvas(24, 13)
    columns, colours = 4, {1: "white", 2: figures.PALE_ORANGE, 3: figures.PALE_ORANGE, 4: figures.ORANGE}
    for number, moment in enumerate(moments):
        x, top = 0.6 + 6 * (number % columns), 12.4 - 6.6 * (number // columns)
        title = phrase("after step {step}").format(step=number) if number else phrase("before")
        axes.text(x, top, title, va="center", fontsize=10, weight="bold")
        for rank, parts in enumerate(moment["parts"]):
            for part, inside in enumerate(parts):
                left, bottom = x + 1.3 * rank, top - 1.7 - 1.15 * part
                style = dict(facecolor=colours[len(inside)], edgecolor=figures.LINE)
                axes.add_patch(matplotlib.patches.Rectangle((left, bottom), 1.2, 1.05, **style))
                text = "".join(map(str, inside))
                axes.text(left + 0.6, bottom + 0.5, text, ha="center", va="center", fontsize=8.5)
    return drawing
