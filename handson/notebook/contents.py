"""The list of the course's notebooks, which the first notebook prints."""

import json
import re
from pathlib import Path

from handson.language import translated
from handson.words import aligned

NAME = re.compile(r"\d\d[b-z]?_.*\.ipynb")
MINUTES = re.compile(r"^\*\*.*?(\d+)", re.MULTILINE)  # "**In about 15 minutes you will**", in any language


def titles(folder="."):
    """Return [(name, title)] of the notebooks in `folder` whose names start with a number, in order. The title is the
    first heading."""
    return [(path.stem, _title(_text(path))) for path in _notebooks(folder)]


def show(folder="."):
    """Print the notebooks in `folder`, and how many minutes each of them states."""
    if found := [(name, title, translated(minutes)) for name, title, minutes in rows(folder)]:
        print(*aligned(found[0], found[1:]), sep="\n")


def rows(folder):
    """Return (name, title, words for the minutes that it states) of the notebooks in `folder`."""
    found = []
    for path in _notebooks(folder):
        text = _text(path)
        minutes = MINUTES.search(text)
        found.append((path.stem, _title(text), f"{minutes[1]:>3} minutes" if minutes else ""))
    return found


def _notebooks(folder):
    return sorted(path for path in Path(folder).glob("*.ipynb") if NAME.fullmatch(path.name))


def _text(path):
    """Return the Markdown cells of a notebook."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def _title(text):
    return next((line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")), "")
