"""Exercises and notebooks from solutions: what stands between the markers is taken out, and PUT YOUR CODE is put in with the hint.

    ### BEGIN SOLUTION name: the hint that students read
    the solution
    ### GIVEN a line that students get in place of the solution (job scripts)
    ### END SOLUTION

The markers are nbgrader's, so that its tools understand the sources too. In Python an unfilled gap raises NotImplementedError with
its name. A notebook's source is the jupytext percent script NN_topic/NN_topic.py. Release is deterministic: the same solutions give
the same exercises and notebooks.
"""

import re
import shutil
import tempfile
import textwrap
from pathlib import Path

import jupytext
import nbformat

from handson.errors import OneSentence

BEGIN = re.compile(r"( *)### BEGIN SOLUTION ([a-z][a-z0-9_]*): (\S.*)")
END = re.compile(r" *### END SOLUTION")
GIVEN = re.compile(r" *### GIVEN (.*)")
LIKE_A_MARKER = re.compile(r"\s*#+\s*(begin|end|given)\b|.*\b(begin|end)\s*_?solution", re.IGNORECASE)
LEFT_OUT = {"__pycache__", "results", ".ipynb_checkpoints"}


class ReleaseError(OneSentence, ValueError):
    """What is wrong with the markers of a solution, with file and line."""


def release(solutions, course, check=False, say=print):
    """Build course/exercises and course/notebooks from `solutions` anew, or with `check` only compare. Raises ReleaseError; then
    nothing has been changed."""
    built = {"exercises": {}, "notebooks": {}}  # room -> path in it -> text and mode
    for path in _sources(solutions):
        text, mode = path.read_text(), path.stat().st_mode & 0o777
        if path.suffix in (".py", ".sh"):
            text = gap(text, path.suffix, path)
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
        raise ReleaseError(f"{room} is not what the solutions give ({stale[0]} differs): run `python -m grader release`")


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


def gap(text, kind, where="text"):
    """`text`, the source of a solution, as an exercise; kind: the file's suffix, ".py" or ".sh". Raises ReleaseError."""
    lines, names, begun = [], set(), None
    for number, line in enumerate(text.splitlines(), start=1):
        at = f"{where}, line {number}"
        if begin := BEGIN.fullmatch(line):
            if begun:
                raise ReleaseError(f"{at}: a gap begins inside the one of line {begun}; end that one first")
            indent, name, hint = begin.groups()
            if name in names:
                raise ReleaseError(f"{at}: there is a gap called {name} already; give this one another name")
            names.add(name)
            begun = number
            lines += [f"{indent}# {part}" for part in textwrap.wrap(f"PUT YOUR CODE: {hint}", 100)]
            if kind == ".py":
                lines.append(f'{indent}raise NotImplementedError("PUT YOUR CODE: {name}")')
        elif END.fullmatch(line):
            if not begun:
                raise ReleaseError(f"{at}: END SOLUTION without a BEGIN SOLUTION; remove it, or add the beginning")
            begun = None
        elif begun and (given := GIVEN.fullmatch(line)):
            lines.append(given[1])
        elif LIKE_A_MARKER.match(line):
            raise ReleaseError(f"{at}: {line.strip()!r} is no marker; write `### BEGIN SOLUTION name: hint`, `### GIVEN line` or `### END SOLUTION`")
        elif not begun:
            lines.append(line)
    if begun:
        raise ReleaseError(f"{where}, line {begun}: the gap is never ended; add `### END SOLUTION`")
    return "\n".join(lines) + "\n"


def _sources(folder):
    """The files below `folder`, sorted; links are followed, and what runs leave behind is left out."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not LEFT_OUT & set(path.relative_to(folder).parts) and not re.search(r"\.[oe]\d+$", path.name)
    ]
