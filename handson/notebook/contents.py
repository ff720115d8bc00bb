"""The course's notebooks, found in their folder: the first one lists them."""

import json
import re
from pathlib import Path

MINUTES = re.compile(r"In about (\d+) minutes")


def titles(folder="."):
    """[(name, title) of each notebook in `folder` whose name begins with its number], in order; the title is the first
    heading."""
    return [(path.stem, _title(_text(path))) for path in _notebooks(folder)]


def show(folder="."):
    """Print the notebooks in `folder`, and how many minutes each of them says to take."""
    for path in _notebooks(folder):
        text = _text(path)
        minutes = MINUTES.search(text)
        print(f"{path.stem:26}{_title(text):34}{f'{minutes[1]:>3} minutes' if minutes else ''}".rstrip())


def _notebooks(folder):
    return sorted(Path(folder).glob("[0-9][0-9]_*.ipynb"))


def _text(path):
    """The texts of a notebook, without its code."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def _title(text):
    return next((line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")), "")
