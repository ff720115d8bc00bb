"""Turns a student's notebook into text in which gaps can be found: the percent script of the notebook that was given
out, with the student's cells in place of those that have gaps. A cell that was deleted, moved, copied or broken does
not affect other cells."""

import ast
import json
import re
from dataclasses import replace

from grader import gaps
from grader.gaps import CELL

MAGIC = re.compile(r"[ \t]*(?:!|%%?[a-zA-Z]|\?).*|[\w.]+\?\??[ \t]*$", re.MULTILINE)
TIMED = re.compile(r"([ \t]*)%time[ \t]+(?=[^-\s!%])")  # what follows is run as if it stood alone
TEXTS = "|".join(
    rf"{quote * 3}(?:\\.|[^\\])*?(?:{quote * 3}|\Z)|{quote}(?:\\.|[^{quote}\\\n])*{quote}?" for quote in "\"'"
)
# of Python; a text may be without its end
PIECE = re.compile(rf"{TEXTS}|#[^\n]*|\\\r?\n|[^\"'#\\()\[\]{{}}\n]+|.", re.DOTALL)
LOST = "# There is no cell with the gap"  # stands in place of a cell that was not found
LONGEST, MOST_CELLS = 200_000, 1000  # characters of code, cells; reading time grows faster than these
ALIKE = 0.5  # the share of a cell's given lines that a student's cell must have to count as that cell


class NotebookError(gaps.TextError):
    """A sentence on why a notebook can't be read."""


def text(data, given, executed=()):
    """The text of notebook `data` (bytes; None if there is none), whose Exercise is `given`. Raises NotebookError.

    executed: the sources of cells that were run, the latest last; they take precedence over what was saved. Of several
    copies of a cell the last one that was filled counts. Of the student's own cells, what gives names is kept, above
    the cell with a gap that came next.
    """
    released, found, own = cells(given), {}, {}
    as_given, with_gaps = (
        {_stripped(cell.lines) for cell in released},
        [number for number, cell in enumerate(released) if cell.gaps],
    )
    for ran in ((sources(data) if data is not None else ()), map(without_magics, executed)):
        place = next(iter(with_gaps), len(released))
        for source in ran:
            number = which(released, source)
            if number is not None:
                place = next((other for other in with_gaps if other > number), len(released))
                if number not in found or attempted(released[number], source):
                    found[number] = source
            elif _stripped(gaps.text_lines(source)) not in as_given:
                own.setdefault(place, {}).pop(source, None)
                own[place][source] = giving_names(source)
    lines = []
    for number, cell in enumerate(released):
        lost = [f"{LOST} {gap.name}" for gap in cell.gaps]
        lines += [
            *_lines(own, number),
            *([CELL, *gaps.text_lines(found[number])] if number in found else lost or cell.lines),
        ]
    lines += _lines(own, len(released))
    return gaps.normal("\n".join(lines).encode(errors="replace")) + "\n"


def cells(given):
    """The cells of a notebook's Exercise, each as an Exercise of its own."""
    starts = [number for number, line in enumerate(given.lines) if line.startswith(CELL)]
    parts = zip([0, *starts], [*starts, len(given.lines)])
    return [
        replace(
            given,
            lines=given.lines[first:end],
            gaps=tuple(
                replace(gap, first=gap.first - first, end=gap.end - first)
                for gap in given.gaps
                if first <= gap.first < end
            ),
        )
        for first, end in parts
    ]


def kept_lines(cell):
    """The lines of a cell that are outside of its gaps, stripped; students keep these."""
    in_gaps = {number for gap in cell.gaps for number in range(gap.first, gap.end)}
    return [
        line.strip()
        for number, line in enumerate(cell.lines)
        if number not in in_gaps and line.strip() and not line.startswith(CELL)
    ]


def which(released, source):
    """The number of the cell with gaps that `source` is most similar to; None if it is similar to none."""
    theirs = {line.strip() for line in gaps.text_lines(source)}
    shares = {
        number: sum(line in theirs for line in kept) / len(kept)
        for number, cell in enumerate(released)
        if cell.gaps and (kept := kept_lines(cell))
    }
    best = max(shares, key=shares.get, default=None)
    return best if best is not None and shares[best] >= ALIKE else None


def attempted(cell, source):
    """Whether at least one of the cell's gaps is filled."""
    found = (gaps.find(cell, gap.name, gaps.normal(source.encode(errors="replace"))) for gap in cell.gaps)
    return any(fragment and fragment.code for fragment in found)


def sources(data):
    """The sources of a notebook's code cells, in order. Raises NotebookError."""
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError):
        lines = data.decode(errors="replace").split("\n")
        if line := next((number for number, text in enumerate(lines, 1) if gaps.CONFLICT.match(text)), None):
            raise NotebookError(f"line {line} is a mark of git's for a merge conflict: resolve it, then save") from None
        gaps.refuse_encoding(data)
        raise NotebookError(
            "the notebook is no JSON: it is damaged, or was never saved; take a copy that JupyterLab opens"
        ) from None
    try:
        if notebook["nbformat"] != 4:
            raise NotebookError(
                f"the notebook has format {notebook['nbformat']!r:.20}, not 4: open it in JupyterLab and save it"
            )
        code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
        code = [source if isinstance(source, str) else "".join(source) for source in code]
    except (KeyError, TypeError):
        raise NotebookError("the file is JSON, but no notebook: take a copy that JupyterLab opens") from None
    if len(code) > MOST_CELLS or sum(map(len, code)) > LONGEST:
        raise NotebookError(
            "the notebook has more code than a student writes: copy your answers into the one given out"
        )
    return list(map(without_magics, code))


def without_outputs(data):
    """A notebook (bytes) as it is graded: with its code cells, and without outputs. What can't be read so is returned
    as it is."""
    try:
        notebook = json.loads(data)
        cells = [
            {"cell_type": "code", "source": cell["source"]} for cell in notebook["cells"] if cell["cell_type"] == "code"
        ]
        return json.dumps({"nbformat": notebook["nbformat"], "cells": cells}).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return data


def without_magics(source):
    """A cell's source with IPython's own lines (``!ls``, ``%matplotlib``) turned into comments, as in a percent script,
    and without ``%time`` before a statement. Only a line that begins a statement can be one: in brackets, in a text and
    after a backslash, ``!=`` and ``%name`` are Python."""
    parts, place, brackets, begins = [], 0, 0, True
    while place < len(source):
        if begins and (timed := TIMED.match(source, place)):
            parts.append(timed[1])
            place = timed.end()
        magic = MAGIC.match(source, place) if begins else None
        piece = (magic or PIECE.match(source, place))[0]
        parts.append(f"# {piece}" if magic else piece)
        place += len(piece)
        brackets = max(0, brackets + (piece in tuple("([{")) - (piece in tuple(")]}")))
        begins = piece == "\n" and not brackets
    return "".join(parts)


def _lines(own, place):
    """The lines of the student's own cells at a place."""
    return [line for lines in own.get(place, {}).values() for line in (CELL, *lines)]


def _stripped(lines):
    """The lines of a cell's code, for comparison."""
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith(CELL))


def giving_names(source):
    """The lines of a cell's statements that give names: functions, classes, imports, assignments, loops, and calls such
    as `list.append`; none if it is not valid Python."""
    try:
        statements = ast.parse(source).body
        return [
            line
            for statement in statements
            if not _only_shows(statement)
            for line in gaps.text_lines(ast.unparse(statement))
        ]
    except gaps.UNREADABLE:
        return []


def _only_shows(statement):
    """Whether a statement is an expression that can change none of the notebook's values, such as `print(x)`."""
    if not isinstance(statement, ast.Expr):
        return False
    called = statement.value.func if isinstance(statement.value, ast.Call) else None
    return not (isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name))
