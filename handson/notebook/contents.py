"""The course's notebooks, found in their folder: the first one lists them."""

import json
from pathlib import Path


def titles(folder="."):
    """[(name, title) of each notebook in `folder` whose name begins with its number], in order; the title is the first heading."""
    return [(path.stem, _title(path)) for path in sorted(Path(folder).glob("[0-9][0-9]_*.ipynb"))]


def _title(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    lines = [line for cell in cells if cell["cell_type"] == "markdown" for line in "".join(cell["source"]).splitlines()]
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), "")


def show(folder="."):
    """Print the notebooks in `folder`."""
    for name, title in titles(folder):
        print(f"{name:20}{title}")
