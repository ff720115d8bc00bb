"""Figures: colours with the same meaning in all of them; axes, bars and lines; and functions that write a figure as
.png and .svg, or show it in a notebook, with alternative text."""

import io
import itertools
import statistics
from pathlib import Path

from handson.errors import OneSentence
from handson.files import written_aside
from handson.labels import in_language
from handson.language import marked

# the colours of Okabe and Ito, which people with any colour vision can distinguish
BLACK, VERMILION, BLUE, GREEN = "#000000", "#D55E00", "#0072B2", "#009E73"
ORANGE, SKY, PINK = "#E69F00", "#56B4E9", "#CC79A7"
LAYERS = ("#D9E8F5", "#A9CCE8", "#6FA8D6", "#3A7CB8")  # colours of a network's layers, starting at its input
PALE_BLUE, PALE_ORANGE, YELLOW, GREY, PAPER, LINE = "#9ECAE1", "#FBE3B5", "#F7E7A6", "#B4B4AE", "#F7F7F5", "#444444"
# (colour, hatching) of each part of a step, or of a GPU's memory. The parts also differ in brightness, for readers who
# cannot distinguish the colours.
PARTS = {
    "compute": (PALE_BLUE, ""),
    "forward": ("#C9DFF0", ""),
    "backward": (LAYERS[2], "///"),
    "all-reduce": (ORANGE, "xxx"),
    "communication": (ORANGE, "xxx"),
    "waiting": ("#FFFFFF", "...."),
    "optimize": (GREY, "--"),
    "loading": (YELLOW, "|||"),
    "load": (YELLOW, "|||"),
    "enlarge": ("#FCF6DC", ""),
    "evaluate": ("#D9C2DF", "\\\\\\"),
    "copy": ("#B5D8B0", "---"),
    "contention": (LAYERS[3], ""),
    "overhead": ("#DDDDDD", "++"),
    "parameters": (LAYERS[3], ""),
    "gradients": (LAYERS[2], "///"),
    "optimizer": (GREY, "--"),
    "activations": (YELLOW, "..."),
}
SERIES = tuple(
    dict(color=colour, marker=marker, linestyle=line, markerfacecolor="white")
    for colour, marker, line in ((BLACK, "o", "-"), (VERMILION, "^", "--"), (BLUE, "s", "-."), (GREEN, "D", ":"))
)
BESIDE = (("0.55", ""), (PALE_BLUE, "///"), (YELLOW, "..."), ("white", "xxx"))  # bars of several series at one position
TRACKS = {
    "pytorch": dict(label="PyTorch", color=BLUE, marker="o"),
    "chainer": dict(label="Chainer", color=VERMILION, marker="^"),
    "tensorflow": dict(label="TensorFlow", color=ORANGE, marker="s"),
    "lightning": dict(label="Lightning", color=GREEN, marker="v"),
    "accelerate": dict(label="Accelerate", color=PINK, marker="P"),
    "jax": dict(label="JAX", color=SKY, marker="X"),
}
IDEAL = dict(color="0.3", linestyle="--", linewidth=1, label="ideal")
CORES = dict(color="0.3", linestyle=":", linewidth=1.5, label="what the cores here allow")
DISTURBED = dict(color="black", linestyle="", marker="x", markersize=10, zorder=3, label="disturbed by other programs")
PREDICTED = VERMILION
FORESEEN = dict(
    color=PREDICTED, linestyle="", marker="*", markersize=14, fillstyle="none", zorder=3, label="your prediction"
)
YOURS = dict(color=PREDICTED, linestyle=(0, (1, 1)), linewidth=1.5)  # a line at the student's prediction
PICTURES = (".png", ".svg", ".pdf", ".eps", ".ps", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".gif")


def part(name):
    """Return the style of this part of a step, or of a GPU's memory, in all figures: arguments of bars."""
    colour, hatch = PARTS[name]
    return dict(facecolor=colour, hatch=hatch, edgecolor="0.25", linewidth=0.6)


def axes(width=7.5, height=3.2, columns=1, grid=True, **options):
    """Return a matplotlib Figure of this size in inches, followed by its axes, from the left; options: the options of
    matplotlib's Figure.subplots."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(width, height), layout="constrained")
    found = drawing.subplots(1, columns, squeeze=False, **options)[0]
    for one in found:
        if grid:
            one.grid(color="0.92")
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    return drawing, *found


def canvas(width, height):
    """Return a Figure and its axes, without a frame; one unit of its coordinates is 0.4 inches."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(0.4 * width, 0.4 * height))
    found = drawing.add_axes((0, 0, 1, 1))
    found.set(xlim=(0, width), ylim=(0, height))
    found.axis("off")
    return drawing, found


def legend_above(axes, **options):
    """Put the legend in a line above the axes."""
    axes.legend(
        **dict(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize="small", frameon=False, ncols=4) | options
    )


def bars(axes, values, xlabel, predicted=None, start=0, **style):
    """Draw horizontal bars from `start`, one per name, from the top. A bar shows its value, or the median of several
    values, which get a mark each. predicted: name -> the position of a long line; style: matplotlib's options for the
    bars."""
    middles = [statistics.median(value) if isinstance(value, list) else value for value in values.values()]
    style = dict(color=PALE_BLUE, edgecolor="0.25", height=0.55) | style
    axes.barh(range(len(values)), [middle - start for middle in middles], left=start, **style)
    for row, (name, value) in enumerate(values.items()):
        if isinstance(value, list):
            axes.plot(value, [row] * len(value), "k|", markersize=11, markeredgewidth=1.5, alpha=0.7)
        if name in (predicted or {}):
            axes.plot([predicted[name]] * 2, [row - 0.4, row + 0.4], color=PREDICTED, linewidth=2.5)
    axes.set(yticks=range(len(values)), yticklabels=list(values), xlabel=xlabel)
    axes.set(xlim=(start, None), ylim=(len(values) - 0.5, -0.5))


def bars_beside(axes, series, predicted=None):
    """Draw groups of vertical bars at the positions 0, 1, ..., with one bar per series. series: name -> a number for
    each position; predicted: the same form, marked by a line across the bar."""
    width = 0.8 / len(series)
    for number, ((name, heights), (colour, hatch)) in enumerate(zip(series.items(), BESIDE)):
        places = [place + width * (number - (len(series) - 1) / 2) for place in range(len(heights))]
        axes.bar(places, heights, width, label=name, color=colour, hatch=hatch, edgecolor="0.25", linewidth=0.6)
        for place, height in zip(places, (predicted or {}).get(name, ())):
            axes.plot([place - 0.45 * width, place + 0.45 * width], [height] * 2, color=PREDICTED, linewidth=2.5)


def band(axes, x, values, style, label):
    """Draw the mean of several runs as a line, and a band from the lowest to the highest. values: (runs, points)."""
    axes.plot(x, values.mean(axis=0), label=label, **style)
    axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=style["color"], alpha=0.13, linewidth=0)


def spans(axes, rows, height=0.6):
    """Draw when each row was in which part of a step. rows: name -> part -> [(begin, length), ...]."""
    labels = {}
    for row, parts in enumerate(rows.values()):
        for name, moments in parts.items():
            label = None if name in labels else labels.setdefault(name, name)
            axes.broken_barh(moments, (row - height / 2, height), label=label, **part(name))
    axes.set(yticks=range(len(rows)), yticklabels=list(rows), xlim=(0, None), ylim=(len(rows) - 0.5, -0.5))
    legend_above(axes)


def one_after_the_other(lengths):
    """Convert name -> length to a row of `spans`: each part starts at the end of the previous one."""
    ends = itertools.accumulate(lengths.values())
    return {name: [(end - length, length)] for (name, length), end in zip(lengths.items(), ends)}


def bar_chart(values, xlabel, predicted=None, start=0):
    """Return a picture with a bar for each name, and its value in it; `predicted`: name -> the value to mark; `start`:
    the left end of bars, 1 for ratios."""
    predicted = predicted or {}
    drawing, one = axes(7.5, 0.8 + 0.45 * len(values))
    bars(one, values, xlabel, predicted, start, **part("compute"))
    largest = max([*values.values(), *predicted.values()]) - start
    for row, (name, value) in enumerate(values.items()):
        side = "right" if value - start > 0.12 * largest else "left"
        one.text(value, row, f" {_short(value)} ", va="center", ha=side, fontsize="small")
        if name in predicted:
            text = f" {_short(predicted[name])}"
            one.text(predicted[name], row - 0.42, text, va="top", color=PREDICTED, fontsize="small")
    one.set_xlim(start, start + 1.12 * largest)
    if predicted:
        one.plot([], [], color=PREDICTED, linewidth=2.5, label="predicted")
        legend_above(one)
    marks = "".join(f"; predicted for {name} {_short(value)}" for name, value in predicted.items())
    return picture(
        drawing, f"{xlabel}: {', '.join(f'{name} {_short(value)}' for name, value in values.items())}{marks}."
    )


def numbers_of_log_axis(axes):
    """Add enough labels to a logarithmic y axis to read values, even if it spans less than a decade."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    low, high = axes.get_ylim()
    subs = (1, 2, 5) if high < 1e3 * low else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs) if high > 20 * low else MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:,.10g}")


def _short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def medians(values, form):
    """Return the medians in words: "plain 120 images/s, ..." if `form` is "{:.0f} images/s"."""
    return ", ".join(f"{name} {form.format(statistics.median(value))}" for name, value in values.items())


class FigureError(OneSentence, OSError):
    """A figure cannot be written."""


def told(paths):
    """Return the sentence on the files of a figure."""
    return marked(f"Figure: {' and '.join(map(str, paths))}")


def place(path, out, name):
    """Return the path of a command's figure: that of -o, or, if it is None, the file `name` next to the result of the
    run `out`, which is its folder or a file in it."""
    out = Path(out)
    return Path(path or (out if out.is_dir() else out.parent) / name)


def save(drawing, path, description):
    """Write a matplotlib Figure as `path` with .png and with .svg, instead of another picture's ending; return both
    paths. Raises FigureError."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stem = path.stem if path.suffix.lower() in PICTURES else path.name
    paths = [path.with_name(f"{stem}.png"), path.with_name(f"{stem}.svg")]
    description = in_language(drawing, description)
    try:
        with (
            matplotlib.rc_context({"svg.hashsalt": "handson"}),
            written_aside(paths[0]) as png,
            written_aside(paths[1]) as svg,
        ):
            drawing.set_dpi(150)  # Figure.savefig draws each file, which takes most of the time
            FigureCanvasAgg(drawing).print_png(png, metadata={"Description": description})
            drawing.set_layout_engine("none")  # the positions of all parts are known now
            drawing.set_dpi(72)
            FigureCanvasSVG(drawing).print_svg(svg, metadata={"Description": description, "Date": None})
    except OSError as error:
        raise FigureError(f"{paths[0]} cannot be written ({error.strerror}): give another place with -o") from None
    return paths


def picture(drawing, description, width=None):
    """Return a matplotlib Figure as a notebook shows it, with alternative text; `width` in pixels on the page."""
    from IPython.display import Image

    png, description = io.BytesIO(), in_language(drawing, description)
    drawing.savefig(png, format="png", dpi=150, metadata={"Description": description})
    return Image(png.getvalue(), alt=description, width=width or round(96 * drawing.get_figwidth()))
