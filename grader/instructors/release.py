"""Build exercises and notebooks from the solutions: PUT YOUR CODE and the hint replace the code between the markers.

grader/gaps.py describes the markers. A notebook's source is the jupytext percent script NN_topic/NN_topic.py. A unit's
second notebook is NNb_topic.py next to it. The same solutions always give the same exercises and notebooks.
"""

import contextlib
import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from grader import exercises, notebook_cells
from grader.course import UNITS, most_points
from grader.gaps import BEGIN, REQUESTS_GO_HERE, GapError, exercise, text_lines
from grader.instructors.reports.in_words import head
from grader.instructors.rules import FILE, NONE, read
from handson.cluster import job_scripts
from handson.cluster import site as sites
from handson.files import written_aside
from handson.language import ENGLISH, available
from handson.pbs import directives
from handson.pbs.pbs_errors import PBSError
from handson.words import counted

# the file in exercises/ and notebooks/ with the sha256 and the name of each file that the last release wrote
RELEASED = ".released"
LEFT_OUT = {"__pycache__", "results", ".ipynb_checkpoints", RELEASED}
GAP_IN_CELL = re.compile(
    r'^ *### BEGIN SOLUTION (\w+):|^ *raise NotImplementedError\("PUT YOUR CODE: (\w+)"\)', re.MULTILINE
)
# a notebook ends with this check of a unit, or of the notebook and its scripts; checks of single gaps give no points
CHECK_IN_CELL = re.compile(
    r'^check\(\s*"(\w+)"((?:,\s*"\w+\.ipynb"(?:,\s*"[\w.]+")*)?)(?:, track="\w+")?,?\s*\)', re.MULTILINE
)


@dataclass
class Built:
    """The content of exercises/ and notebooks/, for the site of this name, in a language. files: {path: (text, mode)};
    exercises: {path: its Exercise} of files with gaps."""

    site: str
    language: str = ENGLISH
    files: dict = field(default_factory=dict)
    exercises: dict = field(default_factory=dict)


def release(solutions, course, check=False, say=print, site=None, language=None):
    """Build course/exercises and course/notebooks from `solutions`, or with `check` only compare them. Return what was
    Built.

    site: the site whose queue and modules job scripts get, and for which they are then checked; by default that of
    course.toml, otherwise the chosen one. language: the language of texts, comments and hints; by default that of
    course.toml. Raises GapError, SiteError, RulesError and CatalogueError before anything is changed. Files that were
    changed or added since the last release, and that this release replaces or lacks, are moved into
    exercises.before-TIME or notebooks.before-TIME; results and the output of jobs stay.
    """
    rules = read(course / FILE.name)
    site = site or rules.site
    built = build(solutions, site, rules, language)
    unrecorded = not check and any(
        (course / room).is_dir() and not (course / room / RELEASED).exists() for room in ("exercises", "notebooks")
    )
    cloned = build(solutions, "local").files if unrecorded else {}  # the files of the repository
    for room in ("exercises", "notebooks"):
        files = {path: made for path, made in built.files.items() if path.parts[0] == room}
        if check:
            _compare(course, room, files)
        else:
            _replace(course, room, files, cloned, say)
        gaps = sum(len(given.gaps) for file, given in built.exercises.items() if file.startswith(room))
        say(f"{course / room}: {counted(len(files), 'file')}, {counted(gaps, 'gap')}.")
    if site and not check and (course / "jobs/sites").is_dir():
        (course / "jobs/sites/CHOSEN").write_text(f"{site}\n")
        say(
            f"The site is now {site}: checks and grading compare job scripts with it. To change the job scripts of"
            f" solutions/, too: python -m handson site use {site} --solutions"
        )
    return built


def build(solutions, site=None, rules=NONE, language=None):
    """Return the Built exercises and notebooks of `solutions`. rules: the course's rules, which the heads of notebooks
    state. Raises GapError, SiteError, and CatalogueError if there is no such language."""
    here, named = sites.for_exercises(site or sites.chosen()), {}
    built = Built(here.name, language or (rules.language if rules.language in available() else ENGLISH))
    in_language = _translation(built.language)
    for source in _sources(solutions):
        text, mode = source.read_text(), source.stat().st_mode & 0o777
        is_notebook = exercises.folder_of_notebook(source.stem) == source.parent.name
        path = (
            Path("notebooks", f"{source.stem}.ipynb")
            if is_notebook
            else Path("exercises", source.relative_to(solutions))
        )
        if source.suffix == ".sh":
            text = job_scripts.for_students(text, here)
            training = source.with_name(source.name.replace("_profile", "_training"))
            if training != source and training.exists():
                text = without_requests(text, source)
        if source.suffix in (".py", ".sh"):
            text = in_language(text, source.relative_to(solutions))
            given = exercise(text, source.suffix, source)
            _refuse_unchecked(given, path, source)
            _refuse_twins(given, path, source, named)
            if given.gaps:
                built.exercises[str(path)] = given
            text = given.text
        if is_notebook:
            _refuse_cells_that_are_lost(given, source)
        built.files[path] = (notebook(_with_head(text, source, rules)), 0o644) if is_notebook else (text, mode)
    return built


def _translation(language):
    """Return a function that translates the text of a source, given its path in solutions/."""
    if language == ENGLISH:
        return lambda text, path: text
    from grader.instructors.translation import catalogues
    from grader.instructors.translation.translated_files import translated_file

    requests = catalogues.translator(language, "check_all")(REQUESTS_GO_HERE)

    def in_language(text, path):
        translate = catalogues.translator(language, catalogues.domain_of_source(path))
        return translated_file(text, path.suffix, translate).replace(REQUESTS_GO_HERE, requests)

    return in_language


def _with_head(script, source, rules):
    """Return the percent script of a notebook with the unit's points and deadline below its title, if the course has
    rules."""
    unit = source.stem.split("_", 1)[1]
    if rules == NONE or unit not in UNITS:
        return script
    title = re.search(r"^# # .*\n", script, re.MULTILINE)
    return f"{script[: title.end()]}#\n# {head(rules, unit)}\n{script[title.end() :]}" if title else script


def without_requests(text, source):
    """Return a job script for profiles without its requests, because they would show the answer for the training
    scripts. Raises GapError."""
    lines = text.splitlines(keepends=True)
    try:
        # requests that a site does not need
        kept = [line for line in lines if not directives.requests(line.encode()) and not line.startswith("##PBS ")]
    except PBSError as error:
        raise GapError(f"{source} has a {str(error).strip()}: close its quotation marks") from None
    return (
        "".join(kept).replace("#!/bin/bash\n", f"#!/bin/bash\n# {REQUESTS_GO_HERE}\n", 1)
        if len(kept) < len(lines)
        else text
    )


def notebook(script):
    """Return the notebook of a percent script as text, always the same for the same script. Cells with gaps and cells
    that check a unit get nbgrader's metadata; the latter with the unit's points."""
    import jupytext  # these two take a second to import, and most callers of this module do not need them
    import nbformat

    document = jupytext.reads(script, fmt="py:percent")
    document.metadata.pop("jupytext", None)
    for number, cell in enumerate(document.cells):
        cell.id = f"cell-{number}"
        cell.metadata |= _nbgrader(cell)
    return nbformat.writes(document, version=4) + "\n"


def closing_checks(source):
    """Return (unit, the file names in it) of each check that gives points, in the source of a notebook or of a cell."""
    return [(unit, tuple(re.findall(r'"([^"]+)"', files))) for unit, files in CHECK_IN_CELL.findall(source)]


def _nbgrader(cell):
    """Return a cell's metadata in nbgrader's format (version 3), or {} for cells without a gap or a check."""
    if cell.cell_type != "code":
        return {}
    common = {"schema_version": 3, "task": False}
    if gaps := ["".join(names) for names in GAP_IN_CELL.findall(cell.source)]:
        return {"nbgrader": common | {"grade": False, "solution": True, "locked": False, "grade_id": "-".join(gaps)}}
    for unit, files in closing_checks(cell.source):
        graded = {
            "grade": True,
            "solution": False,
            "locked": True,
            "grade_id": f"check-{unit}",
            "points": most_points(unit, files),
        }
        return {"nbgrader": common | graded, "editable": False, "deletable": False}
    return {}


def _refuse_unchecked(given, path, source):
    """Raise GapError for a gap without a check, and for a check without a gap, whose markers were removed or
    renamed."""
    checks = [check for parts in UNITS.values() for part in parts if part.file == str(path) for check in part.checks]
    names = {gap.name for gap in given.gaps}
    for gap in given.gaps:
        if gap.name not in {check.gap for check in checks}:
            raise GapError(
                f"{source}, line {_line(source, gap)}: the gap {gap.name} has no check; add one to grader/units, for"
                f" {path}"
            )
    for check in checks:
        if check.gap not in names and not check.whole:
            raise GapError(
                f"{source} has no gap {check.gap}, but grader/units has a check of it: put its markers back, or"
                " remove the check"
            )


def _refuse_twins(given, path, source, named):
    """Raise GapError if another file of the same unit and track has a gap of the same name. named: {(unit, track, gap):
    file} so far."""
    for unit, track in {
        (unit, part.track) for unit, parts in UNITS.items() for part in parts if part.file == str(path)
    }:
        for gap in given.gaps:
            if (other := named.setdefault((unit, track, gap.name), path)) != path:
                raise GapError(
                    f"{source}, line {_line(source, gap)}: there is a gap called {gap.name} in {other} already; give"
                    " this one another name"
                )


def _refuse_cells_that_are_lost(given, source):
    """Raise GapError for a cell that consists only of its gap, because a cell is found again by the lines that students
    keep."""
    for cell in notebook_cells.cells(given):
        if cell.gaps and not notebook_cells.kept_lines(cell):
            gap = cell.gaps[0]
            raise GapError(
                f"{source}, line {_line(source, gap)}: the gap {gap.name} is all of its cell; put a line there that"
                " students keep"
            )


def _line(source, gap):
    lines = enumerate(text_lines(source.read_text()), start=1)
    return next(number for number, line in lines if (begin := BEGIN.fullmatch(line)) and begin[2] == gap.name)


def _compare(course, room, files):
    there = {path.relative_to(course): path.read_text() for path in _sources(course / room)}
    if stale := [path for path in sorted({*files, *there}) if there.get(path) != files.get(path, (None,))[0]]:
        raise GapError(
            f"{course / room} is not what the solutions give ({stale[0].relative_to(room)} differs): run `python -m"
            " grader release`"
        )


def _replace(course, room, files, cloned, say):
    there = {path.relative_to(course): path for path in _sources(course / room)}
    same = {
        name
        for name, path in there.items()
        if name in files and not path.is_symlink() and path.read_bytes() == files[name][0].encode()
    }
    released = _released(course / room) or {name: _digest(text.encode()) for name, (text, _) in cloned.items()}
    changed = {
        name
        for name in there.keys() - same
        if there[name].is_symlink() or _digest(there[name].read_bytes()) != released.get(name)
    }
    kept = course / f"{room}.before-{datetime.now():%Y%m%d-%H%M%S-%f}"
    try:
        for name in there.keys() - same - changed:
            there[name].unlink()
        for name in changed:
            place = kept / name.relative_to(room)
            place.parent.mkdir(parents=True, exist_ok=True)
            there[name].rename(place)
        for name in there.keys() - same:
            with contextlib.suppress(OSError):  # stops at the first folder that is not empty
                for folder in there[name].parents:
                    folder.rmdir()
        (course / room).mkdir(parents=True, exist_ok=True)
        for name, (text, mode) in files.items():
            if name not in same:
                with written_aside(course / name) as file:
                    file.write(text.encode())
            (course / name).chmod(mode)
        with written_aside(course / room / RELEASED) as file:
            file.writelines(
                f"{_digest(text.encode())}  {name.relative_to(room)}\n".encode()
                for name, (text, _) in sorted(files.items())
            )
    except OSError as error:
        raise GapError(
            f"{error.filename} can't be written ({error.strerror}): make room for it, or name another --course"
        ) from None
    if kept.exists():
        say(
            f"{kept} has {counted(len(changed), 'file')} of {room} that somebody had changed since the last release:"
            " delete it if nobody needs it."
        )


def _released(folder):
    """Return {path from the course: sha256} of the files that the last release wrote, or {} if it is unknown."""
    try:
        lines = [line.split("  ", 1) for line in (folder / RELEASED).read_text().splitlines()]
        return {Path(folder.name, name): digest for digest, name in lines}
    except (OSError, ValueError):
        return {}


def _digest(data):
    return hashlib.sha256(data).hexdigest()


def _sources(folder):
    """Return the files below `folder`, including links to files, sorted, without those that runs and jobs write."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not LEFT_OUT & set(path.relative_to(folder).parts)
        and not re.search(r"\.[oe]\d+$", path.name)
    ]
