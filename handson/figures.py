"""Writing a figure: the same drawing as .png and as .svg, with words for people who cannot see it."""

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
