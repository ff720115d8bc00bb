"""``from grader import check; check("multi_gpu")``: check a student's work and show the result in a notebook or a
terminal.

Scripts and notebooks are read from their files, which are handed in. If no editor saves a notebook, for example when
nbgrader runs it, its gaps are taken from the cells that were run. The code runs in other processes.
"""

import atexit
import contextlib
import functools
import secrets
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader import display, exercises, notebook_cells
from grader.course import UNITS, name_of_gap, uses_frameworks
from grader.gaps import TextError, find
from grader.judging import judge
from grader.probes import loaded_for
from grader.sandbox import Server
from grader.verdict import counted
from handson import frameworks
from handson.errors import OneSentence
from handson.files import course_folder
from handson.ipython import in_editor, in_notebook, shell

TRACKS = ("pytorch", "chainer")


class CheckError(OneSentence, ValueError):
    """The task or track does not exist."""


class Stopped(OneSentence):
    """The student stopped the check."""


@dataclass(frozen=True)
class Checked:
    """The result of a check. A notebook shows it as a table. Its text is the number of points, which nbgrader reads as
    the cell's value."""

    unit: str
    verdicts: tuple
    seconds: float
    note: str = ""  # advice before the next check
    places: dict = field(default_factory=dict)  # (track, gap): the location of its code, in words
    hints: bool = False  # whether text contains hints; a notebook shows them on a click

    @property
    def points(self):
        return sum(verdict.points or 0 for verdict in self.verdicts)

    @property
    def max_points(self):
        return sum(verdict.max_points for verdict in self.verdicts)

    def __repr__(self):
        return f"{self.points:g}"

    def _repr_html_(self):
        return display.html(self)


def check(unit, *names, track=None, folder=None, hints=False):
    """Check a unit, show the result, and return it as a Checked.

    names: gaps or files, if only these are checked; folder: the course's folder; by default that around the working
    directory; hints: whether a terminal shows them. Raises CheckError if there is no such unit, gap, file or track, and
    Stopped on Ctrl-C.
    """
    if unit not in UNITS:
        raise CheckError(f"there is no task {unit!r:.40}: choose one of {', '.join(UNITS)}")
    if track not in (None, *TRACKS):
        raise CheckError(f"there is no track {track!r:.40}: choose one of {', '.join(TRACKS)}")
    folder, begin, show = folder or course_folder(), time.monotonic(), display.Progress(unit, in_notebook())
    parts = [part for part in named(unit, names) if part.track in (track or part.track, "")]
    if uses_frameworks(unit) and (problem := frameworks.why_not()):
        raise CheckError(problem)
    gaps = [check.gap for part in parts for check in part.checks for _ in check.criteria]
    server, executed, found = (
        _server(loaded_for(part.file for part in parts if _begun(folder, part.file))),
        executed_cells(),
        [],
    )
    try:
        show.now(gaps[0], 0, len(gaps))
        for verdict in judge(
            unit, parts, lambda file: read(folder, file, executed), server, shared=secrets.randbelow(1 << 31)
        ):
            found.append(verdict)
            if len(found) < len(gaps):
                show.now(gaps[len(found)], len(found), len(gaps))
    except KeyboardInterrupt:
        show.end("The check was stopped.")
        raise Stopped("the check was stopped: run it again at any time") from None
    note, places = _on_cells_run_otherwise(folder, parts, executed), _places(unit, folder, parts, executed)
    checked = Checked(unit, tuple(counted(found)), time.monotonic() - begin, note, places, hints)
    show.end(f"Checked in {checked.seconds:.1f} s.")
    if not in_notebook():
        print(display.text(checked))
    return checked


def named(unit, names):
    """Return the Parts of a unit with the checks of the named gaps and files; by default all. Raises CheckError."""
    if not names:
        return UNITS[unit]
    there, found = {}, []
    for part in UNITS[unit]:
        checks = []
        for check in part.checks:
            its_names = {check.gap, name_of_gap(unit, part.file, check.gap), Path(part.file).name}
            there |= dict.fromkeys(sorted(its_names))
            checks += [check] * bool(its_names & set(names))
        found.append(replace(part, checks=tuple(checks)))
    if unknown := [name for name in names if name not in there]:
        raise CheckError(f"{unit} has no gap or file {unknown[0]!r:.40}: choose from {', '.join(there)}")
    return tuple(part for part in found if part.checks)


def _places(unit, folder, parts, executed):
    """Return {(track, gap): words for the location of its code}."""
    found = {}
    for part in parts:
        with contextlib.suppress(TextError):
            text, given = read(folder, part.file, executed), exercises.given_out(part.file)
            for check in part.checks if text is not None else ():
                if place := _place(part.file, given, check.gap, text):
                    found[part.track, name_of_gap(unit, part.file, check.gap)] = place
    return found


def _place(file, given, gap, text):
    if gap not in {one.name for one in given.gaps} or not (fragment := find(given, gap, text)):
        return ""
    if file.endswith(".ipynb"):
        return f"the cell with `{notebook_cells.sign(given, given.gap(gap))}`"
    return f"line {fragment.line} of {file}"


def read(folder, file, executed=()):
    """Return the text of a student's file, or None. executed: the cells that were run, which replace a notebook's file
    if it is missing, or if no editor saves it. Raises TextError."""
    try:
        data = (folder / file).read_bytes()
    except OSError:
        data = None
    return exercises.handed_in(file, data, () if data is not None and in_editor() else executed)


def _on_cells_run_otherwise(folder, parts, executed):
    """Return a sentence that names the cells whose saved code differs from the code that was run, or ""."""
    if not (executed and in_editor()):
        return ""
    names = []
    for part in parts:
        with contextlib.suppress(TextError):
            if part.file.endswith(".ipynb") and (saved := read(folder, part.file)) is not None:
                names += notebook_cells.run_otherwise(saved, exercises.given_out(part.file), executed)
    if not names:
        return ""
    cells = f"the cell{'s' * (len(names) > 1)} of {', '.join(f'`{name}`' for name in names)}"
    return (
        f"In {cells}, the saved file has other code than what you ran last. The saved file is checked and handed in:"
        " save the notebook (Ctrl-S) and check again, or run the saved code."
    )


def _begun(folder, file):
    """Return whether a file may contain code to run: a script that is missing or untouched needs no libraries."""
    try:
        return not file.endswith(".py") or read(folder, file) not in (None, exercises.given_out(file).text)
    except TextError:
        return False


def executed_cells():
    """Return the sources of the cells that were run in this kernel, in order; none outside IPython."""
    ipython = shell()
    return tuple(ipython.history_manager.input_hist_raw) if ipython else ()


@functools.cache
def _server(libraries):
    """Return a server that is kept for later checks, because loading libraries takes seconds."""
    server = Server(libraries)
    atexit.register(server.stop)
    return server
