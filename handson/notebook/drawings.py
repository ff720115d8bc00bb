"""The drawings that explain distributed training in the notebooks: each function returns a picture."""

import numpy

from handson.figures import LAYERS, LINE, PALE_ORANGE, PAPER, PARTS, VERMILION, canvas, picture
from handson.language import marked
from handson.words import counted

GRADIENT = PARTS["all-reduce"][0]
ARROW = dict(arrowstyle="-|>", color=LINE, linewidth=1.3, shrinkA=0, shrinkB=0, mutation_scale=11)


def _box(axes, x, y, width, height, text="", colour="white", size=9, **style):
    from matplotlib.patches import FancyBboxPatch

    style = dict(facecolor=colour, edgecolor=LINE, linewidth=1) | style
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.18", **style))
    dark = colour == LAYERS[-1]
    axes.text(
        x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=size, color="white" if dark else "black"
    )


def _worker(axes, x, y, width, height, name):
    """Draw the frame around the content of one GPU."""
    _box(axes, x, y, width, height, colour=PAPER, edgecolor="0.6", linestyle=(0, (4, 2)))
    axes.text(x + 0.25, y + height - 0.2, name, ha="left", va="top", fontsize=9.5, weight="bold")


def _arrow(axes, start, end, text="", **style):
    axes.annotate("", end, start, arrowprops=ARROW | style)
    if text:
        axes.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 0.18, text, ha="center", va="bottom", fontsize=8.5)


def _network(axes, x, y, layers=range(4), width=1.15, height=2.6, gap=0.35):
    """Draw layers side by side, from the input on; returns the x coordinate after the last one."""
    for layer in layers:
        _box(axes, x, y, width, height, f"layer\n{layer + 1}", LAYERS[layer], 8.5)
        x += width + gap
    return x - gap


def _digits(axes, x, y, first, count=4, side=1.2):
    """Draw a little stack of images from the data set, starting with image `first`."""
    from matplotlib.patches import Rectangle

    from handson.training import data

    images = data.load_arrays("digits")[0].images
    for number in range(count):
        left, bottom = x + 0.28 * number, y + 0.28 * (count - 1 - number)
        place = (left, left + side, bottom, bottom + side)
        axes.imshow(images[first + number, 0], cmap="gray_r", extent=place, zorder=2 + number)
        frame = dict(fill=False, edgecolor=LINE, linewidth=0.8, zorder=2.5 + number)
        axes.add_patch(Rectangle((left, bottom), side, side, **frame))


def data_parallel(workers=2):
    """Draw the same network on every worker, each with its own part of the data."""
    height = 5.0 * workers
    drawing, axes = canvas(24, height)
    for worker in range(workers):
        y = 5.0 * (workers - 1 - worker) + 0.4
        _worker(axes, 4.0, y, 11.6, 4.2, f"GPU {worker}: the whole network")
        _digits(axes, 0.5, y + 1.0, 6 * worker)
        _arrow(axes, (2.9, y + 1.9), (4.5, y + 1.9))
        behind = _network(axes, 4.6, y + 0.5)
        _arrow(axes, (behind + 0.1, y + 1.8), (behind + 1.1, y + 1.8))
        _box(axes, behind + 1.2, y + 0.9, 2.9, 1.8, "its own\ngradients", PALE_ORANGE)
        _arrow(axes, (15.0, y + 1.8), (17.0, y + 1.8), arrowstyle="<|-|>")
    _box(axes, 17.1, 0.6, 2.7, height - 1.2, "all-reduce:\nthe mean\nof all\ngradients", GRADIENT, 9.5)
    _arrow(axes, (19.9, height / 2), (20.9, height / 2))
    axes.text(21.1, height / 2, "the same\nupdate\neverywhere", ha="left", va="center", fontsize=9.5)
    words = (
        f"Data parallel training: {workers} GPUs have the same network and different images; an all-reduce gives all"
        " the mean of their gradients."
    )
    return picture(drawing, words)


def model_parallel():
    """Draw one network that is split: every worker has some of the layers, and all see the same data."""
    drawing, axes = canvas(24, 5)
    _digits(axes, 0.5, 1.4, 0)
    _arrow(axes, (2.9, 2.2), (4.5, 2.2))
    for gpu, x in ((0, 4.0), (1, 12.6)):
        _worker(axes, x, 0.4, 5.4, 4.2, f"GPU {gpu}: half of the layers")
        _network(axes, x + 0.9, 0.9, layers=(2 * gpu, 2 * gpu + 1), width=1.6, gap=0.5)
    _arrow(axes, (9.5, 2.7), (12.5, 2.7), "activations")
    _arrow(axes, (12.5, 1.5), (9.5, 1.5), color=GRADIENT)
    axes.text(11, 1.3, "their gradients", ha="center", va="top", fontsize=8.5)
    _arrow(axes, (18.1, 2.2), (19.3, 2.2))
    axes.text(19.5, 2.2, "the loss; each GPU\nupdates its own\nlayers", ha="left", va="center", fontsize=9.5)
    words = (
        "Model parallel training: GPU 0 has the first layers and GPU 1 the others; activations go from one to the"
        " other, and their gradients back."
    )
    return picture(drawing, words)


def all_reduce(values=((4, -2, 1), (2, 0, 3), (-1, 2, 1), (3, 4, -1))):
    """Draw every rank's gradient before and after an all-reduce with the mean."""
    values = numpy.array(values, dtype=float)
    ranks, parameters = values.shape
    height = 1.5 * ranks + 1.6
    drawing, axes = canvas(22, height)
    means = numpy.broadcast_to(values.mean(axis=0), values.shape)
    for x, title, shown, colour in (
        (2.4, marked("before"), values, PALE_ORANGE),
        (15.2, marked("after"), means, GRADIENT),
    ):
        axes.text(x + 0.8 * parameters, height - 0.6, title, ha="center", va="center", fontsize=10, weight="bold")
        for rank, row in enumerate(shown):
            y = height - 2.6 - 1.5 * rank
            axes.text(x - 0.3, y + 0.5, f"rank {rank}", ha="right", va="center", fontsize=9.5)
            for parameter, value in enumerate(row):
                _box(axes, x + 1.6 * parameter, y, 1.4, 1.0, f"{value:g}", colour, 10)
    middle = (height - 1.1) / 2
    _arrow(axes, (7.6, middle), (8.7, middle))
    _box(axes, 8.8, middle - 1.5, 3.2, 3.0, "all-reduce\n(mean)", "white", 10)
    _arrow(axes, (12.1, middle), (13.1, middle))
    words = (
        f"An all-reduce: before, each of {ranks} ranks has {parameters} numbers of its own; after, all have the mean of"
        " each."
    )
    return picture(drawing, words)


def four_steps(workers=2):
    """Draw one iteration of data-parallel training along the axis of time."""
    parts = (("forward", 3.4), ("backward", 6.0), ("all-reduce", 3.2), ("optimize", 2.2))
    height = 1.7 * workers + 1.5
    drawing, axes = canvas(19, height)
    for worker in range(workers):
        x, y = 2.0, height - 1.9 - 1.7 * worker
        axes.text(1.7, y + 0.6, f"GPU {worker}", ha="right", va="center", fontsize=9.5)
        for name, width in parts:
            if name != "all-reduce":
                _box(axes, x, y, width - 0.15, 1.2, name, PARTS[name][0], 10)
            elif worker == workers - 1:
                _box(axes, x, y, width - 0.15, 1.7 * workers - 0.5, name, PARTS[name][0], 10)
            x += width
    axes.annotate("", (17.0, 0.55), (2.0, 0.55), arrowprops=ARROW)
    axes.text(17.2, 0.55, "time", ha="left", va="center", fontsize=9.5)
    words = (
        "An iteration: every GPU does forward and backward by itself, all take part in the all-reduce, and each"
        " optimizes by itself."
    )
    return picture(drawing, words)


def nodes(count=2, per_node=2):
    """Draw nodes with their GPUs, and the rank numbers of the process on each GPU."""
    width = 0.8 + count * (5.2 * per_node + 1.4)
    drawing, axes = canvas(width, 6.2)
    for node in range(count):
        left = 0.8 + node * (5.2 * per_node + 1.4)
        _worker(axes, left, 1.6, 5.2 * per_node + 0.4, 4.3, f"node{node + 1}")
        for gpu in range(per_node):
            rank, x = node * per_node + gpu, left + 0.4 + 5.2 * gpu
            _box(axes, x, 2.0, 4.8, 2.9, f"rank {rank}\nintra_rank {gpu}\ninter_rank {node}", LAYERS[1], 10.5)
        middle = left + 2.6 * per_node + 0.2
        axes.plot([middle, middle], [1.6, 0.7], color=LINE, linewidth=2)
    axes.plot([1.5, width - 1.5], [0.7, 0.7], color=LINE, linewidth=4, solid_capstyle="round")
    axes.text(width / 2, 0.5, "network", ha="center", va="top", fontsize=9.5)
    words = (
        f"{count} nodes with {per_node} GPUs each: ranks are counted through all nodes, intra_ranks begin at 0 on each"
        " node."
    )
    return picture(drawing, words)


def chunks(states):
    """Draw, at each moment of an all-reduce, whose numbers are in each rank's chunks.

    states: for each rank a list of tensors, one for each moment. Rank r started with 10 ** r in each chunk, so a sum of
    101 contains the numbers of ranks 0 and 2.
    """
    ranks, moments = len(states), len(states[0])
    found = [
        [
            [[one for one in range(ranks) if int(total) // 10**one % 10] for total in of_rank[moment]]
            for of_rank in states
        ]
        for moment in range(moments)
    ]
    drawing, _ = contributions(found, columns=min(4, moments))
    whole = sum(int(total) == int("1" * ranks) for of_rank in states for total in of_rank[-1])
    words = (
        f"The chunks of {counted(ranks, 'rank')} before an all-reduce and after each of its {moments - 1} steps, with"
        f" the ranks whose numbers are in them; at the end, {whole} of {ranks * ranks} chunks have those of all ranks."
    )
    return picture(drawing, words)


def contributions(moments, columns, arrived=(), wrong=None, below=0.0):
    """Draw whose numbers each rank's chunks hold, a panel for each moment. Returns the figure and its axes.

    moments: for each moment, rank and chunk, the ranks whose numbers are added up there; arrived: (moment, rank, chunk)
    that get a thick frame; wrong: the moment with a title in red; below: free height at the bottom.
    """
    ranks = len(moments[0])
    rows, side = -(-len(moments) // columns), 1.15 * ranks + 1.2
    drawing, axes = canvas(1.6 + columns * side, rows * (side + 0.6) + below)
    for moment, of_ranks in enumerate(moments):
        x = 1.6 + moment % columns * side
        top = (rows - moment // columns) * (side + 0.6) - 0.6 + below
        title = f"after step {moment}" if moment else marked("before")
        style = dict(ha="center", va="center", fontsize=9.5, weight="bold")
        colour = VERMILION if moment == wrong else "black"
        axes.text(x + 0.5 * (side - 1.2), top + 0.2, title, color=colour, **style)
        for rank, of_chunks in enumerate(of_ranks):
            y = top - 1.3 - 1.15 * rank
            if moment % columns == 0:
                axes.text(x - 0.2, y + 0.5, f"rank {rank}", ha="right", va="center", fontsize=9.5)
            for chunk, inside in enumerate(of_chunks):
                complete = inside == list(range(ranks))
                colour = GRADIENT if complete else PALE_ORANGE if len(inside) > 1 else "white"
                frame = dict(linewidth=2.5, zorder=2) if (moment, rank, chunk) in arrived else {}
                _box(axes, x + 1.15 * chunk, y, 1.05, 1.05, "".join(map(str, inside)), colour, 8.5, **frame)
        for chunk in range(ranks):
            style = dict(ha="center", va="top", fontsize=6.5, color="0.35")
            axes.text(x + 1.15 * chunk + 0.525, y - 0.12, f"chunk {chunk}", **style)
    return drawing, axes
