"""The exercises as they were given out; a student's files are compared with them to find the gaps. They are made from
the solutions, or, in what students receive, read from exercises.json beside this file."""

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
    """The Exercise of `file`, a path below the course's folder: "exercises/..." or "notebooks/NN_topic.ipynb" (as
    percent script)."""
    at_site = file.endswith(".sh") and not GIVEN_OUT.exists()
    return _given_out(file, job_scripts.for_students(solution(file).read_text()) if at_site else None)


@functools.cache
def _given_out(file, text):
    """text: the source of a job script, which depends on the chosen site."""
    if GIVEN_OUT.exists():
        entry = _recorded()[file]
        return Exercise(tuple(entry["lines"]), tuple(Gap(*gap) for gap in entry["gaps"]), entry["kind"])
    source = solution(file)
    return exercise(text or source.read_text(), source.suffix, source)


def folders():
    """The names of the units' folders, NN_topic, sorted."""
    if GIVEN_OUT.exists():
        named = {Path(file).stem if file.endswith(".ipynb") else file.split("/")[1] for file in _recorded()}
    else:
        named = {path.name for path in (ROOT / "solutions").iterdir() if path.is_dir()}
    return sorted(name for name in named if FOLDER.fullmatch(name))


def handed_in(file, data, executed=()):
    """The text of a student's `file`, or None if there is none. data: its bytes, or None; executed: see
    grader.notebook_cells.text. Raises TextError."""
    if file.endswith(".ipynb") and (data is not None or executed):
        return notebook_cells.text(data, given_out(file), executed)
    if data is None:
        return None
    gaps.refuse_encoding(data, bytes_are_text=file.endswith(".sh"))
    # a carriage return ends a line of Python, and none for qsub and the shell
    return normal(data, "\n") if file.endswith(".sh") else normal(data)


def solution(file):
    """The path of the solution that `file` is made from; students don't receive it."""
    room, path = file.split("/", 1)
    name = Path(path)
    return ROOT / "solutions" / (name if room == "exercises" else f"{folder_of_notebook(name.stem)}/{name.stem}.py")


def folder_of_notebook(name):
    """The folder of the unit that a notebook belongs to: 05_communication for 05b_communication, too."""
    return OF_A_SECOND_NOTEBOOK.sub(r"\1_", name)


def solved(file, **instead):
    """The text of an exercise with all gaps filled: those named in `instead` with its code, the remaining ones from the
    solution."""
    return gaps.fill(given_out(file), {**gaps.answers(solution(file).read_text()), **instead})


def recorded(given):
    """The text of exercises.json. given: {file: its Exercise}."""
    entries = {}
    for file, one in sorted(given.items()):
        places = [[gap.name, gap.hint, gap.first, gap.end] for gap in one.gaps]
        entries[file] = {"kind": one.kind, "lines": one.lines, "gaps": places}
    return json.dumps(entries, indent=1) + "\n"


@functools.cache
def _recorded():
    return json.loads(GIVEN_OUT.read_text())
