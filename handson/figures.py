"""Figures: the colours that mean the same in all of them; and writing one, as .png and .svg or as a picture in a
notebook, with words for people who cannot see it."""

import io

from handson.errors import OneSentence
from handson.files import written_aside

# of a step: (colour, hatching); brightness and hatching differ as well as colour, so that they can be told apart in
# grey
PARTS = {
    "compute": ("#9ECAE1", ""),
    "forward": ("#C9DFF0", ""),
    "backward": ("#6FA8D6", "///"),
    "all-reduce": ("#E69F00", "xxx"),
    "communication": ("#E69F00", "xxx"),
    "waiting": ("#FFFFFF", "...."),
    "optimize": ("#B4B4AE", "--"),
    "loading": ("#F7E7A6", "|||"),
    "enlarge": ("#FCF6DC", ""),
    "evaluate": ("#D9C2DF", "\\\\\\"),
    "copy": ("#B5D8B0", "---"),
    "contention": ("#3A7CB8", ""),
    "overhead": ("#DDDDDD", "++"),
}
# colour, marker, line
SERIES = (("#000000", "o", "-"), ("#D55E00", "^", "--"), ("#0072B2", "s", "-."), ("#009E73", "D", ":"))
IDEAL = dict(color="0.3", linestyle="--", linewidth=1, label="ideal")
CORES = dict(color="0.3", linestyle=":", linewidth=1.5, label="what the cores here allow")
PREDICTED = "#D55E00"
PICTURES = (".png", ".svg", ".pdf", ".eps", ".ps", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".gif")


def part(name):
    """How all figures draw this part of a step: arguments of bars."""
    colour, hatch = PARTS[name]
    return dict(facecolor=colour, hatch=hatch, edgecolor="0.25", linewidth=0.6)


class FigureError(OneSentence, OSError):
    """Why a figure cannot be written."""


def save(drawing, path, description):
    """Write a matplotlib Figure as `path` with .png and with .svg, in place of another ending of pictures; returns both
    paths. Raises FigureError."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stem = path.stem if path.suffix.lower() in PICTURES else path.name
    paths = [path.with_name(f"{stem}.png"), path.with_name(f"{stem}.svg")]
    try:
        with (
            matplotlib.rc_context({"svg.hashsalt": "handson"}),
            written_aside(paths[0]) as png,
            written_aside(paths[1]) as svg,
        ):
            drawing.set_dpi(150)  # Figure.savefig draws each file twice, and drawing is what takes long
            FigureCanvasAgg(drawing).print_png(png, metadata={"Description": description})
            drawing.set_layout_engine("none")  # the places of all parts are known now
            drawing.set_dpi(72)
            FigureCanvasSVG(drawing).print_svg(svg, metadata={"Description": description, "Date": None})
    except OSError as error:
        raise FigureError(f"{paths[0]} cannot be written ({error.strerror}): give another place with -o") from None
    return paths


def picture(drawing, description, width=None):
    """A matplotlib Figure as what a notebook shows of it, with words for people who cannot see it; `width` in pixels on
    the page."""
    from IPython.display import Image

    png = io.BytesIO()
    drawing.savefig(png, format="png", dpi=150, metadata={"Description": description})
    return Image(png.getvalue(), alt=description, width=width or round(96 * drawing.get_figwidth()))
