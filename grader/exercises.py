"""The released exercises, with which a student's files are compared to find the gaps. They are built from the
solutions, or, in a student's copy of the course, read from exercises.json next to this file."""

import functools
import json
import re
from pathlib import Path

from grader import gaps, notebook_cells
from grader.gaps import Exercise, Gap, exercise, normal
from handson.cluster import job_scripts
from handson.files import COURSE

ROOT = COURSE
GIVEN_OUT = Path(__file__).with_name("exercises.json")
FOLDER = re.compile(r"\d\d_[a-z][a-z0-9_]*")
OF_A_SECOND_NOTEBOOK = re.compile(r"^(\d\d)[b-z]_")


def given_out(file):
    """Return the released Exercise of `file`, a path relative to the course's folder: "exercises/..." or
    "notebooks/NN_topic.ipynb" (as percent script)."""
    at_site = file.endswith(".sh") and not GIVEN_OUT.exists()
    return _given_out(file, job_scripts.for_students(solution(file).read_text()) if at_site else None)


@functools.cache
def _given_out(file, text):
    """Return an Exercise. text: the source of a job script, which depends on the chosen site."""
    if GIVEN_OUT.exists():
        entry = _recorded()[file]
        return Exercise(tuple(entry["lines"]), tuple(Gap(*gap) for gap in entry["gaps"]), entry["kind"])
    source = solution(file)
    return exercise(text or source.read_text(), source.suffix, source)


def folders():
    """Return the names of the units' folders, NN_topic, sorted."""
    if GIVEN_OUT.exists():
        named = {Path(file).stem if file.endswith(".ipynb") else file.split("/")[1] for file in _recorded()}
    else:
        named = {path.name for path in (ROOT / "solutions").iterdir() if path.is_dir()}
    return sorted(name for name in named if FOLDER.fullmatch(name))


def handed_in(file, data, executed=()):
    """Return the text of a student's `file`, or None if it is missing. data: its bytes, or None; executed: see
    grader.notebook_cells.text. Raises TextError."""
    if file.endswith(".ipynb") and (data is not None or executed):
        return notebook_cells.text(data, given_out(file), executed)
    if data is None:
        return None
    gaps.refuse_encoding(data, bytes_are_text=file.endswith(".sh"))
    # a carriage return ends a line of Python, but not for qsub and the shell
    return normal(data, "\n") if file.endswith(".sh") else normal(data)


def solution(file):
    """Return the path of the solution of `file`, which students do not receive."""
    room, path = file.split("/", 1)
    name = Path(path)
    return ROOT / "solutions" / (name if room == "exercises" else f"{folder_of_notebook(name.stem)}/{name.stem}.py")


def folder_of_notebook(name):
    """Return the folder of a notebook's unit: 05_communication, also for 05b_communication."""
    return OF_A_SECOND_NOTEBOOK.sub(r"\1_", name)


def solved(file, **instead):
    """Return the text of an exercise with all gaps filled: those named in `instead` with its code, the remaining ones
    from the solution."""
    return gaps.fill(given_out(file), {**gaps.answers(solution(file).read_text()), **instead})


def recorded(given):
    """Return the text of exercises.json. given: {file: its Exercise}."""
    entries = {}
    for file, one in sorted(given.items()):
        places = [[gap.name, gap.hint, gap.first, gap.end] for gap in one.gaps]
        entries[file] = {"kind": one.kind, "lines": one.lines, "gaps": places}
    return json.dumps(entries, indent=1) + "\n"


@functools.cache
def _recorded():
    return json.loads(GIVEN_OUT.read_text())
