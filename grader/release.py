"""Exercises and notebooks from solutions: what stands between the markers is taken out, and PUT YOUR CODE is put in with the hint.

grader/gaps.py has the markers. A notebook's source is the jupytext percent script NN_topic/NN_topic.py. Release is deterministic: the same solutions give
the same exercises and notebooks.
"""

import re
import shutil
import tempfile
from pathlib import Path

import jupytext
import nbformat

from grader.gaps import GapError, exercise

LEFT_OUT = {"__pycache__", "results", ".ipynb_checkpoints"}


def release(solutions, course, check=False, say=print):
    """Build course/exercises and course/notebooks from `solutions` anew, or with `check` only compare. Raises GapError; then
    nothing has been changed."""
    built = {"exercises": {}, "notebooks": {}}  # room -> path in it -> text and mode
    for path in _sources(solutions):
        text, mode = path.read_text(), path.stat().st_mode & 0o777
        if path.suffix in (".py", ".sh"):
            text = exercise(text, path.suffix, path).text
        if path.stem == path.parent.name:
            built["notebooks"][Path(f"{path.stem}.ipynb")] = notebook(text), mode
        else:
            built["exercises"][path.relative_to(solutions)] = text, mode
    for room, files in built.items():
        if check:
            _compare(course / room, files)
        else:
            _replace(course / room, files)
        say(f"{course / room}: {len(files)} files, {sum(text.count('# PUT YOUR CODE') for text, _ in files.values())} gaps.")


def notebook(script):
    """A percent script as the text of a notebook, always the same for the same script."""
    document = jupytext.reads(script, fmt="py:percent")
    document.metadata.pop("jupytext", None)
    for number, cell in enumerate(document.cells):
        cell.id = f"cell-{number}"
    return nbformat.writes(document, version=4) + "\n"


def _compare(room, files):
    there = {path.relative_to(room): path.read_text() for path in _sources(room)}
    if stale := [path for path in sorted({*files, *there}) if there.get(path) != files.get(path, (None,))[0]]:
        raise GapError(f"{room} is not what the solutions give ({stale[0]} differs): run `python -m grader release`")


def _replace(room, files):
    room.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{room.name}-", dir=room.parent))
    try:
        for path, (text, mode) in files.items():
            (aside / path).parent.mkdir(parents=True, exist_ok=True)
            (aside / path).write_text(text)
            (aside / path).chmod(mode)
        aside.chmod(0o755)
        shutil.rmtree(room, ignore_errors=True)
        aside.rename(room)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _sources(folder):
    """The files below `folder`, sorted; links are followed, and what runs leave behind is left out."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not LEFT_OUT & set(path.relative_to(folder).parts) and not re.search(r"\.[oe]\d+$", path.name)
    ]
