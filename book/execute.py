"""Runs the notebooks with their gaps filled, for the book: `make book-runs`. The book shows the outputs of these runs.

    python -m book.execute              # the notebooks whose run is missing or out of date
    python -m book.execute 00_start     # this one, in any case

A run is a notebook in book/runs, with its outputs. It is out of date if the notebook's code or a script of its unit has
changed since; a change of their texts does not matter.
"""

import ast
import base64
import functools
import getpass
import hashlib
import io
import os
import re
import shutil
import sys
import sysconfig
import time
from datetime import datetime
from pathlib import Path

import nbformat
from PIL import Image

from book import puzzles
from grader import gaps
from grader.course import UNITS
from grader.exercises import ROOT, folder_of_notebook, given_out, solution, solved
from grader.instructors.release import build, closing_checks, notebook
from handson.notebook import contents

RUNS = ROOT / "book/runs"
WORK = ROOT / "build/book"
TOP = "handson-course"  # the folder that students have
NOTEBOOKS = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
LIMIT = 1800  # seconds for a cell
LONG = 60  # seconds: a cell that takes longer is named
# The notebook runs this script as it was given out, then says what is wrong in it; this cell of it needs it fixed.
FIXED = re.compile(r'"(?P<name>\w+\.py)", "after"|^check\(.*"(?P<checked>hanging\.py)"', re.MULTILINE)
READS = re.compile(
    r"^!(?:cd \S+ && )?(?:cat|diff|grep|sed)\b", re.MULTILINE
)  # such a cell shows scripts: those with gaps, no answers
PACKAGES = re.compile(r"[~/][\w./@+-]*/site-packages")  # the folder of all installed packages
SCRIPTS = [part.file for parts in UNITS.values() for part in parts if part.file.startswith("exercises/")]
OTHER_TRACK = {"pytorch": "chainer", "chainer": "pytorch"}
DISTURBED = re.compile(r"^.*\bother programs took (?:up to )?(\d+) % of .*\n?", re.MULTILINE | re.IGNORECASE)
KEY = "depends_on"  # the key in a run's metadata for the hash of its code
ENDINGS = (".py", ".sh")  # a change of such a file may change a run


def filled(name):
    """Return a notebook of the course with filled gaps and solved puzzles, as an nbformat notebook."""
    return nbformat.reads(_filled(_source(name)), as_version=4)


@functools.cache
def _filled(source):
    filled = gaps.fill(gaps.exercise(source, ".py"), gaps.answers(source))
    return notebook(puzzles.solve(filled))


def key(name):
    """Return a hash of all code on which the outputs of a notebook depend."""
    document = filled(name)
    if any("contents.show()" in cell.source for cell in document.cells):  # it prints the heads of all notebooks
        document.cells.append(nbformat.v4.new_code_cell(repr(contents.rows(ROOT / "notebooks"))))
    return key_of(document, ROOT / "solutions" / folder_of_notebook(name))


def key_of(document, folder):
    """Return a hash of the code of a notebook and of the scripts of its unit, which are in `folder`."""
    found = hashlib.sha256()
    for cell in document.cells:
        if cell.cell_type == "code":
            found.update(meaning(cell.source).encode() + b"\0")
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.suffix in ENDINGS and path.stem not in NOTEBOOKS and "results" not in relative.parts:
            found.update(f"{relative}\0{meaning(path.read_text())}\0".encode())
    return found.hexdigest()[:16]


def meaning(code):
    """Return the code of a cell or script without what does not change its outputs: comments, empty lines and
    docstrings."""
    try:
        tree = ast.parse(code)
    except SyntaxError:  # a job script, or a cell with a command for the shell
        return code
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def run_of(name):
    """Return the saved run of a notebook, or None."""
    path = RUNS / f"{name}.ipynb"
    return nbformat.read(path, as_version=4) if path.exists() else None


def why_old(name):
    """Why the run of a notebook is not that of its code, as a sentence; or None."""
    run = run_of(name)
    if run is None:
        return f"{name} has no run: run `make book-runs`, and commit book/runs"
    if run.metadata.get(KEY) != key(name):
        return f"the run of {name} is older than its code: run `make book-runs`, and commit book/runs"
    return None


def shows(code):
    """Whether a cell calls something, and so probably prints or draws, instead of only defining something."""
    try:
        statements = ast.parse(code).body
    except SyntaxError:  # a command for the shell
        return True
    called = (one for one in statements if not isinstance(one, ast.FunctionDef | ast.ClassDef))
    return any(isinstance(node, ast.Call) for one in called for node in ast.walk(one))


def disturbed(run):
    """Of each cell of a run that says that other programs took the cores: their largest share in percent."""
    printed = ("".join(output.get("text", "") for output in cell.get("outputs", ())) for cell in run.cells)
    return [max(map(int, found)) for text in printed if (found := DISTURBED.findall(text))]


def course():
    """Write what students get in exercises/ and notebooks/ into build/book; return its folder. Results of earlier
    notebooks stay: later ones read them."""
    folder = WORK / TOP
    for path, (text, mode) in build(ROOT / "solutions", "local").files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        (folder / path).chmod(mode)
    return folder


def _source(name):
    return solution(f"notebooks/{name}.ipynb").read_text()


def _fill(names, empty=None):
    """Write all scripts into the course with filled gaps, except those with these names and those of the track `empty`,
    which keep their gaps."""
    for file in SCRIPTS:
        text = given_out(file).text if Path(file).name in names or f"/{empty}/" in file else solved(file)
        (WORK / TOP / file).write_text(text)


def execute(name):
    """Run a notebook and save it in book/runs. Returns the seconds of each cell, by number; raises RuntimeError if a
    cell fails."""
    import nbclient

    folder, run, depends_on = course(), filled(name), key(name)
    track = next(iter(re.findall(r'^TRACK = "(\w+)"', _source(name), re.MULTILINE)), None)
    given = {script for other in NOTEBOOKS for pair in FIXED.findall(_source(other)) for script in pair if script}
    _fill(given)

    def before(cell, cell_index):
        if found := FIXED.search(cell.source):
            given.discard(found["name"] or found["checked"])
            _fill(given)
        if READS.search(cell.source):
            _fill({Path(file).name for file in SCRIPTS})
        elif closing_checks(cell.source):  # of both tracks, the check would show the one with more gaps
            _fill(given, OTHER_TRACK.get(track))

    def after(cell, cell_index, **_):
        if READS.search(cell.source) or closing_checks(cell.source):
            _fill(given)

    client = nbclient.NotebookClient(
        run,
        timeout=LIMIT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder / "notebooks")}},
        allow_errors=True,
        on_cell_execute=before,
        on_cell_executed=after,
    )
    (folder / f"notebooks/{name}.ipynb").write_text(nbformat.writes(run))  # a check compares the file with the kernel
    client.execute(env=_environment(name))
    seconds = {number: _seconds(cell) for number, cell in enumerate(run.cells) if cell.cell_type == "code"}
    failures = [output for cell in run.cells for output in cell.get("outputs", ()) if output.output_type == "error"]
    place = (WORK if failures else RUNS) / f"{name}.ipynb"
    place.write_text(nbformat.writes(tidy(run, depends_on)) + "\n")
    if failures:
        raise RuntimeError(f"{name}: {failures[0].ename}: {failures[0].evalue} (the run is {place})")
    return seconds


def _environment(name):
    """Return the environment of the kernel: it finds the commands of this Python, and its jobs are its own. The first
    notebook lists its jobs: they begin at number 1, as a student's do."""
    home = WORK / "pbs"
    if name == NOTEBOOKS[0]:
        home = WORK / "pbs_of_first"
        shutil.rmtree(home, ignore_errors=True)
    programs = sysconfig.get_path("scripts")
    return os.environ | {"HANDSON_PBS_HOME": str(home), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def _seconds(cell):
    """How long a cell ran."""
    moments = cell.metadata.get("execution", {})
    begin, end = moments.get("iopub.execute_input"), moments.get("shell.execute_reply")
    if not begin or not end:
        return 0.0
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def tidy(run, depends_on):
    """Make of a notebook that was run what is kept: small pictures, no bars of progress, and no paths of this
    machine."""
    run.metadata = {KEY: depends_on, "cores": len(os.sched_getaffinity(0))}
    for cell in run.cells:
        cell.metadata.pop("execution", None)
        cell.pop("execution_count", None)
        if cell.cell_type == "code":
            cell.execution_count = None
        if "outputs" in cell:
            cell.outputs = [one for one in cell.outputs if "<progress" not in str(one.get("data", {}).get("text/html"))]
        for output in cell.get("outputs", ()):
            if "execution_count" in output:
                output.execution_count = None
            if "text" in output:
                output.text = _of_any_machine(output.text)
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = _smaller(data["image/png"])
            for kind in data.keys() & {"text/html", "text/plain"}:
                data[kind] = _of_any_machine(data[kind])
    return run


def _of_any_machine(text):
    """Return a text with the course's folder replaced by one that every machine could have, and with another name for
    the owner of a job."""
    for path, name in ((WORK / TOP, f"~/{TOP}"), (WORK, "~"), (ROOT, f"~/{TOP}")):
        text = text.replace(str(path), name)
    owner = rf"(?<= ){re.escape(getpass.getuser())} {{2,}}"  # in a column of qstat
    text = re.sub(owner, lambda found: f"{'student':{len(found[0])}}", text)
    return PACKAGES.sub(f"~/{TOP}/.venv/lib/site-packages", text)


def _smaller(png):
    """Return a picture (PNG, base64) with at most 256 colours. Figures have no more, and a third of the bytes stays."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    written = io.BytesIO()
    picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(written, "png", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


def main(names):
    failed = False
    for name in names or [name for name in NOTEBOOKS if why_old(name)]:
        begin = time.monotonic()
        try:
            seconds = execute(name)
        except RuntimeError as error:
            print(error, file=sys.stderr, flush=True)
            failed = True
            continue
        print(f"{name}: {(time.monotonic() - begin) / 60:.1f} minutes", flush=True)
        if shares := disturbed(run_of(name)):
            print(
                f"    {len(shares)} cells say that other programs took up to {max(shares)} % of the cores: run"
                f" `make book-runs ARGS={name}` again while this machine does nothing else",
                flush=True,
            )
        for number, took in seconds.items():
            if took > LONG:
                print(f"    cell {number}: {took:.0f} s", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
