"""Exercises from solutions: what stands between the markers is taken out, and PUT YOUR CODE is put in with the hint.

    ### BEGIN SOLUTION name: the hint that students read
    the solution
    ### GIVEN a line that students get in place of the solution (job scripts)
    ### END SOLUTION

The markers are nbgrader's, so that its tools understand the sources too. In Python an unfilled gap raises NotImplementedError with
its name. Release is deterministic: the same solutions give the same exercises.
"""

import re
import shutil
import tempfile
import textwrap
from pathlib import Path

from handson.errors import OneSentence

BEGIN = re.compile(r"( *)### BEGIN SOLUTION ([a-z][a-z0-9_]*): (\S.*)")
END = re.compile(r" *### END SOLUTION")
GIVEN = re.compile(r" *### GIVEN (.*)")
LIKE_A_MARKER = re.compile(r"\s*#+\s*(begin|end|given)\b|.*\b(begin|end)\s*_?solution", re.IGNORECASE)
LEFT_OUT = {"__pycache__", "results", ".ipynb_checkpoints"}


class ReleaseError(OneSentence, ValueError):
    """What is wrong with the markers of a solution, with file and line."""


def release(solutions, exercises, check=False, say=print):
    """Build `exercises` from `solutions` anew, or with `check` only compare. Raises ReleaseError; then nothing has been changed."""
    built = {path.relative_to(solutions): _released(path) for path in _sources(solutions)}
    if check:
        there = {path.relative_to(exercises): path for path in _sources(exercises)}
        stale = [path for path in sorted({*built, *there}) if path not in there or path not in built or there[path].read_text() != built[path]]
        if stale:
            raise ReleaseError(f"{exercises} is not what the solutions give ({stale[0]} differs): run `python -m grader release`")
        return say(f"{exercises} is up to date.")
    exercises.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".exercises-", dir=exercises.parent))
    try:
        for path, text in built.items():
            (aside / path).parent.mkdir(parents=True, exist_ok=True)
            (aside / path).write_text(text)
            (aside / path).chmod((solutions / path).stat().st_mode & 0o777)
        aside.chmod(0o755)
        shutil.rmtree(exercises, ignore_errors=True)
        aside.rename(exercises)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    say(f"{exercises}: {len(built)} files, {sum(text.count('# PUT YOUR CODE') for text in built.values())} gaps.")


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


def _released(path):
    text = path.read_text()
    return gap(text, path.suffix, path) if path.suffix in (".py", ".sh") else text


def _sources(folder):
    """The files below `folder`, sorted; links are followed, and what runs leave behind is left out."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not LEFT_OUT & set(path.relative_to(folder).parts) and not re.search(r"\.[oe]\d+$", path.name)
    ]
