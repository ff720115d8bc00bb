"""The course's notebooks run from top to bottom with their gaps filled: in JupyterLab, or in a kernel alone."""

import re
from dataclasses import dataclass
from pathlib import Path

from lab import Notebook
from smaller import smaller

from grader import gaps
from grader.exercises import solution
from grader.instructors.release import notebook

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 900  # seconds for a notebook, on a busy machine
# the notebook that runs in the Chainer track, as its last sections do in any case; all others run in the PyTorch track
CHAINER = "03_multi_node"


@dataclass
class Ran:
    """A notebook after its run. drawn: the widths of its pictures in the browser, in pixels, or None."""

    name: str
    sources: list  # as they were typed
    cells: list
    drawn: list | None

    def outputs(self, kind):
        return [output for cell in self.cells for output in cell.get("outputs", ()) if output["output_type"] == kind]

    @property
    def printed(self):
        return "".join("".join(output["text"]) for output in self.outputs("stream"))


def source_of(name):
    return solution(f"notebooks/{name}.ipynb").read_text()


def filled(name):
    """The sources of a notebook's cells with its gaps filled, by number."""
    import nbformat  # takes a second, which all tests would wait for

    source = source_of(name)
    cells = nbformat.reads(notebook(gaps.fill(gaps.exercise(source, ".py"), gaps.answers(source))), as_version=4).cells
    return [cell.source for cell in cells]


def run_in_lab(name, course, page, lab, pictures):
    """Type and run a notebook in a page of the browser, as a student does: a Ran. pictures: a folder for a picture of
    it, or None."""
    opened = Notebook(page, lab, f"notebooks/{name}.ipynb")
    sources = _typed(name, course)
    for number, cell in enumerate(opened.cells()):
        if cell["source"] != sources[number]:
            opened.type(number, sources[number])
    opened.save()
    opened.run_all()
    opened.wait(LIMIT)
    opened.draw()
    if pictures:
        opened.picture(pictures / f"{name}.png")
    drawn = page.locator(".jp-OutputArea-output img, .jp-OutputArea-output svg").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().width)"
    )
    cells = opened.cells()
    opened.end_kernel()
    return Ran(name, sources, cells, drawn)


def run_in_kernel(name, course):
    """Run a notebook without a browser: a Ran."""
    import nbclient
    import nbformat

    path, sources = course / f"notebooks/{name}.ipynb", _typed(name, course)
    opened = nbformat.read(path, as_version=4)
    for cell, source in zip(opened.cells, sources, strict=True):
        cell.source = source
    nbclient.NotebookClient(
        opened, timeout=LIMIT, kernel_name="python3", resources={"metadata": {"path": path.parent}}, allow_errors=True
    ).execute()
    return Ran(name, sources, opened.cells, None)


def _typed(name, course):
    """The cells with smaller inputs, and with their track; a script that is profiled "after" is fixed first."""
    track = 'TRACK = "chainer"' if name == CHAINER else 'TRACK = "pytorch"'
    return [_mend(smaller(source).replace('TRACK = "pytorch"', track), course) for source in filled(name)]


def _mend(source, course):
    script = re.search(r'"(\w+\.py)", "after"', source)
    return f'!cp "{course.parent}/mended/{script[1]}" {{FOLDER}}/pytorch/\n{source}' if script else source
