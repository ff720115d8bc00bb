"""Convert a student's notebook to text in which gaps can be found: the percent script of the released notebook, in
which the student's cells replace the cells with gaps. A cell that was deleted, moved, copied, merged or broken does not
affect other cells."""

import ast
import json
import re
from dataclasses import dataclass, replace

from grader import gaps
from grader.gaps import CELL

MAGIC = re.compile(r"[ \t]*(?:!|%%?[a-zA-Z]|\?).*|[\w.]+\?\??[ \t]*$", re.MULTILINE)
TIMED = re.compile(r"([ \t]*)%time[ \t]+(?=[^-\s!%])")  # the rest of the line runs like an ordinary statement
TEXTS = "|".join(
    rf"{quote * 3}(?:\\.|[^\\])*?(?:{quote * 3}|\Z)|{quote}(?:\\.|[^{quote}\\\n])*{quote}?" for quote in "\"'"
)
# tokens of Python; a string may be unterminated
PIECE = re.compile(rf"{TEXTS}|#[^\n]*|\\\r?\n|[^\"'#\\()\[\]{{}}\n]+|.", re.DOTALL)
LOST = "# There is no cell with the gap"  # replaces a cell that was not found
LONGEST, MOST_CELLS = 200_000, 1000  # characters of code, number of cells; reading time grows faster than these
ALIKE = 0.5  # the share of a cell's given lines that a student's cell must have to count as that cell
WORDS = {"markdown": "Markdown", "raw": "Raw"}  # the types of cells that are not run, with JupyterLab's names


class NotebookError(gaps.TextError):
    """The reason why a notebook cannot be read."""


@dataclass(frozen=True)
class Source:
    """A cell of a student: its kind, its source, and the names of the gaps in its released form, if its metadata name
    them; `ran`: whether it comes from the kernel."""

    kind: str
    source: str
    names: tuple = ()
    ran: bool = False


def text(data, given, executed=()):
    """Return the text of notebook `data` (bytes, or None if it is missing), whose Exercise is `given`. Raises
    NotebookError.

    executed: the sources of cells that were run, the latest last; they take precedence over the saved file. A gap is in
    the cell that was released with it or that defines its function or assigns its name, even if it was split, merged or
    changed; if there are several, in the last one that fills it. The student's own cells that define names are kept,
    above the next cell with a gap.
    """
    released, chosen, own, other_kinds = cells(given), {}, {}, {}
    as_given = {_stripped(cell.lines) for cell in released}
    with_gaps = [number for number, cell in enumerate(released) if cell.gaps]
    ran = [Source("code", without_magics(source), ran=True) for source in executed]
    for some in (_saved(data) if data is not None else (), ran):
        place = next(iter(with_gaps), len(released))
        for source in some:
            ranks = {gap.name: rank for cell in released for gap, rank in _served(cell, source)}
            if source.kind != "code":
                other_kinds.update(dict.fromkeys(ranks, source.kind))
            elif ranks:
                last = max(number for number in with_gaps if {gap.name for gap in released[number].gaps} & ranks.keys())
                place = next((number for number in with_gaps if number > last), len(released))
                for name, rank in ranks.items():
                    if name not in chosen or rank >= chosen[name][0]:
                        chosen[name] = rank, source.source
            elif _stripped(gaps.text_lines(source.source)) not in as_given:
                own.setdefault(place, {}).pop(source.source, None)
                own[place][source.source] = giving_names(source.source)
    lines = []
    for number, cell in enumerate(released):
        lines += _lines(own, number)
        if not cell.gaps:
            lines += cell.lines
        for gap in cell.gaps:
            if gap.name not in chosen:
                lines.append(f"{LOST} {gap.name} {other_kinds.get(gap.name, '')}".rstrip())
        later = {source for one in released[number + 1 :] for source in _sources_of(one, chosen)}
        for source in dict.fromkeys(_sources_of(cell, chosen)):  # a cell with several gaps is included once
            if source not in later:
                names = " ".join(name for name, (_, of_gap) in chosen.items() if of_gap == source)
                lines += [f"{gaps.HOLDS}{names}", *map(_in_its_cell, gaps.text_lines(source))]
    lines += _lines(own, len(released))
    return gaps.normal("\n".join(lines).encode(errors="replace")) + "\n"


def run_otherwise(saved, given, executed):
    """Return the names of the gaps whose code in the `saved` text of a notebook differs from the cells that were run
    last. Gaps that were not run are left out."""
    ran, found = text(None, given, executed), []
    for gap in given.gaps:
        last, here = gaps.find(given, gap.name, ran), gaps.find(given, gap.name, saved)
        if (
            last
            and last.code
            and f"{LOST} {gap.name}" not in ran
            and not gaps.same_code(last.code, here.code if here else "")
        ):
            found.append(gap.name)
    return found


def _in_its_cell(line):
    """Return a line of a student's cell, changed so that it does not start another cell of a percent script."""
    return f"# {line.removeprefix('#')}" if line.startswith(CELL) else line


def lost(text, file, gap, given):
    """Return a sentence on why a gap has no cell in the `text` of a notebook, or None if it has one. given: the
    Exercise."""
    found = re.search(rf"^{LOST} {gap}(?: (markdown|raw))?$", text, re.MULTILINE)
    if not found:
        return None
    if found[1]:
        return (
            f"the cell of this gap is a {WORDS[found[1]]} cell, which is not run: click on it, press Esc and then Y"
            " to make it a code cell again"
        )
    return (
        f"{file} has no cell with `{sign(given, given.gap(gap))}`: copy the cell of this gap from the original notebook"
    )


def _served(cell, source):
    """Return (gap, rank) for each gap of a released cell that a student's cell may contain. If several cells do, the
    one with the highest rank counts."""
    kept, theirs = kept_lines(cell), _stripped(gaps.text_lines(source.source))
    alike = bool(kept) and sum(line in theirs for line in kept) / len(kept) >= ALIKE
    for gap in cell.gaps:
        gives = _gives(cell, gap, source.source)
        its_own = gap.name in source.names or alike
        if gives or its_own:
            filled = _filled(cell, gap, source.source)
            yield gap, (filled, source.ran, gives, its_own)


def _gives(cell, gap, source):
    """Return whether a source defines the function around a gap, or assigns the name of a gap outside functions."""
    names = gaps.function_around(cell, gap)
    begin = rf"(?:async +)?(?:def|class) +{names[0]}\b" if names else rf"{gap.name} *(?::[^=\n]*)?=(?!=)"
    return re.search(f"^{begin}", source, re.MULTILINE) is not None


def sign(given, gap):
    """Return the line that shows a person which cell contains a gap."""
    names = gaps.function_around(given, gap)
    return f"def {names[0]}" if names else f"{gap.name} ="


def _filled(cell, gap, source):
    text = gaps.normal(f"{gaps.HOLDS}{gap.name}\n{source}".encode(errors="replace"))
    fragment = gaps.find(cell, gap.name, text)
    return bool(fragment and fragment.code)


def _sources_of(cell, chosen):
    return [chosen[gap.name][1] for gap in cell.gaps if gap.name in chosen]


def cells(given):
    """Return the cells of a notebook's Exercise, each as an Exercise."""
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
    """Return the lines of a cell outside its gaps, stripped; students keep these."""
    in_gaps = {number for gap in cell.gaps for number in range(gap.first, gap.end)}
    return [
        line.strip()
        for number, line in enumerate(cell.lines)
        if number not in in_gaps and line.strip() and not line.startswith(CELL)
    ]


def sources(data):
    """Return the sources of a notebook's code cells, in order. Raises NotebookError."""
    return [source.source for source in _saved(data) if source.kind == "code"]


def _saved(data):
    """Return the cells of a notebook as Sources: code cells in their order, then the others. Raises NotebookError."""
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError):
        lines = data.decode(errors="replace").split("\n")
        if line := next((number for number, text in enumerate(lines, 1) if gaps.CONFLICT.match(text)), None):
            raise NotebookError(
                f"line {line} is a merge conflict marker of git: resolve the conflict, then save"
            ) from None
        gaps.refuse_encoding(data)
        raise NotebookError(
            "the notebook is not JSON, since it is damaged or was never saved: use a copy that JupyterLab can open"
        ) from None
    try:
        if notebook["nbformat"] != 4:
            raise NotebookError(
                f"the notebook has format {notebook['nbformat']!r:.20}, not 4: open it in JupyterLab and save it"
            )
        saved = [Source(cell["cell_type"], _joined(cell), _names(cell)) for cell in notebook["cells"]]
    except (KeyError, TypeError):
        raise NotebookError("the file is JSON but not a notebook: use a copy that JupyterLab can open") from None
    code = [cell for cell in saved if cell.kind == "code"]
    if len(code) > MOST_CELLS or sum(len(cell.source) for cell in code) > LONGEST:
        raise NotebookError(
            "the notebook has more code than this exercise needs: copy your answers into the original notebook"
        )
    others = [cell for cell in saved if cell.kind in WORDS and len(cell.source) < LONGEST]
    return [replace(cell, source=without_magics(cell.source)) for cell in code] + others[:MOST_CELLS]


def _joined(cell):
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def _names(cell):
    """Return the gaps of a cell's released form, from its metadata, which a student may have changed or lost."""
    try:
        return tuple(cell["metadata"]["nbgrader"]["grade_id"].split("-"))
    except (KeyError, TypeError, AttributeError):
        return ()


def without_outputs(data):
    """Return a notebook (bytes) in the form that is graded: without outputs, attachments and other content that is not
    read. An unreadable notebook is returned unchanged."""
    try:
        notebook = json.loads(data)
        cells = [
            {
                "cell_type": cell["cell_type"],
                "source": cell["source"],
                "metadata": {"nbgrader": {"grade_id": "-".join(_names(cell))}},
            }
            for cell in notebook["cells"]
        ]
        return json.dumps({"nbformat": notebook["nbformat"], "cells": cells}).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return data


def without_magics(source):
    """Return a cell's source with IPython's own lines (``!ls``, ``%matplotlib``) as comments, as in a percent script,
    and without ``%time`` before a statement. Only the first line of a statement can be one: in brackets, in a string
    and after a backslash, ``!=`` and ``%name`` are Python."""
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
    """Return the lines of the student's own cells at a place."""
    return [line for lines in own.get(place, {}).values() for line in (CELL, *lines)]


def _stripped(lines):
    """Return the lines of a cell's code, for comparison."""
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith(CELL))


def giving_names(source):
    """Return the lines of a cell's statements that define names: functions, classes, imports, assignments, loops, and
    calls such as `list.append`; none if it is not valid Python."""
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
    """Return whether a statement is an expression that cannot change the notebook's values, such as `print(x)`."""
    if not isinstance(statement, ast.Expr):
        return False
    called = statement.value.func if isinstance(statement.value, ast.Call) else None
    return not (isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name))
