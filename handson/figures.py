"""Writing a figure: the same drawing as .png and as .svg, or as a picture in a notebook, with words for people who cannot see it."""

import io

from handson.errors import OneSentence
from handson.files import written_aside


class FigureError(OneSentence, OSError):
    """Why a figure cannot be written."""


def save(drawing, path, description):
    """Write a matplotlib Figure as `path` with .png and with .svg; returns both paths. Raises FigureError."""
    import matplotlib

    stem = path.name.removesuffix(".png").removesuffix(".svg")
    paths = [path.with_name(f"{stem}.png"), path.with_name(f"{stem}.svg")]
    try:
        with matplotlib.rc_context({"svg.hashsalt": "handson"}), written_aside(paths[0]) as png, written_aside(paths[1]) as svg:
            drawing.savefig(png, format="png", dpi=150, metadata={"Description": description})
            drawing.savefig(svg, format="svg", metadata={"Description": description, "Date": None})
    except OSError as error:
        raise FigureError(f"{paths[0]} cannot be written ({error.strerror}): give another place with -o") from None
    return paths


def picture(drawing, description, width=None):
    """A matplotlib Figure as what a notebook shows of it, with words for people who cannot see it; `width` in pixels on the page."""
    from IPython.display import Image

    png = io.BytesIO()
    drawing.savefig(png, format="png", dpi=150, metadata={"Description": description})
    return Image(png.getvalue(), alt=description, width=width or round(96 * drawing.get_figwidth()))
