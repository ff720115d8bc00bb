"""Grading: submissions a minute against nbgrader on an equivalent assignment, what one costs, and how soon the first result comes."""

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import jupytext
import nbformat

from grader.box import Server
from grader.checks import UNITS
from grader.grade import work
from grader.mutants import known, solved
from grader.probes import FOR_SCRIPTS
from grader.release import notebook
from tests.grader import nbgrader_venv

ROOT = Path(__file__).resolve().parents[2]
STUDENTS = 20
THREE_CELLS = """# %%
import torch

# %% solution
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

# %% test
assert optimizer.defaults["momentum"] == 0.9

# %% solution
def step(images, labels):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss

# %% test
before = model.weight.clone()
step(torch.randn(3, 4), torch.tensor([0, 1, 0]))
assert not torch.equal(before, model.weight)

# %% solution
def throughput(images, seconds):
    return images / seconds

# %% test
assert throughput(50, 4) == 12.5
"""


def measure(folder):
    """Rows (what, value, target)."""
    theirs, their_cpu = _nbgrader(folder / "nbgrader")
    rows = [("nbgrader 0.9.6: submissions a minute; CPU seconds of each", f"{theirs:.0f}; {their_cpu:.2f}", "")]
    for name, file in (("notebook, 4 gaps", "notebooks/01_single_gpu.ipynb"), ("script, 5 gaps and a run", UNITS["single_gpu"][0].file)):
        rates = {}
        for engines in (2, 1):
            submissions = _class(folder / name / "handed_in", file)
            rates[engines], cpu, first = _ours(submissions, folder / name / f"graded_{engines}", engines)
            if engines == 2:
                rows.append((f"ours ({name}), sandboxed, 2 engines: submissions a minute", f"{rates[2]:.0f}", ""))
                rows.append((f"  of nbgrader's, {STUDENTS} submissions with the cluster's start", f"{rates[2] / theirs:.1f}", ">= 10"))
                rows.append(("  CPU seconds of each, the cluster's included", f"{cpu:.2f}", ""))
                rows.append(("  seconds from the command to the first result", f"{first:.1f}", "<= 5"))
    rows.append(("steady state, 100 submissions (script): 2 engines / 2 x 1 engine", *_efficiency(folder / "many")))
    rows.append(("milliseconds of an empty check of one rank, sandboxed; plain", "; ".join(f"{ms:.0f}" for ms in _empty()), ""))
    return rows


def _class(folder, file, students=STUDENTS):
    """Hand in for some students, right and wrong answers in turn."""
    unit, part = next((unit, part) for unit, parts in UNITS.items() for part in parts if part.file == file)
    mutants = [mutant for mutant in known(unit, part.track)[0] if mutant["gap"] in {check.gap for check in part.checks}]
    mutants = [mutant for mutant in mutants if mutant.get("status", "failed") == "failed"]
    for number in range(students):
        mutant = mutants[number % len(mutants)]
        text = solved(file, **({mutant["gap"]: mutant["code"]} if number % 2 else {})) + f"# {number}\n"
        path = folder / f"student{number:03}" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(notebook(text) if path.suffix == ".ipynb" else text)
    return folder


def _ours(submissions, out, engines):
    """Submissions a minute, CPU seconds of each, seconds to the first result."""
    command = [sys.executable, "-m", "grader", "grade", submissions, "--out", out, "--unit", "single_gpu", "--engines", str(engines)]
    begin, cpu, first = time.perf_counter(), _cpu(), None
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as grader:
        for line in grader.stdout:
            if first is None and " units graded" in line:
                first = time.perf_counter() - begin
    seconds, students = time.perf_counter() - begin, len(list(submissions.iterdir()))
    return 60 * students / seconds, (_cpu() - cpu) / students, first


def _efficiency(folder):
    """How much faster two engines are than one, over two, without what is done once: from classes of 20 and 120 submissions."""
    seconds = {}
    for engines in (1, 2):
        for students in (20, 120):
            submissions = _class(folder / str(students), UNITS["single_gpu"][0].file, students)
            rate, _, _ = _ours(submissions, folder / f"graded_{engines}_{students}", engines)
            seconds[engines, students] = 60 * students / rate
    one, two = (seconds[engines, 120] - seconds[engines, 20] for engines in (1, 2))
    return f"{one / two / 2:.3f}", ">= 0.9"


def _empty():
    """Milliseconds of a check that does nothing: in a sandbox, and without one."""
    server = Server(FOR_SCRIPTS)
    try:
        medians = []
        for readable in (work.readable(), None):
            times = []
            for _ in range(30):
                begin = time.perf_counter()
                server.run("grader.probes.cases:each", ["grader.probes.pytorch:throughput", [], []], readable=readable)
                times.append(1000 * (time.perf_counter() - begin))
            medians.append(statistics.median(times[5:]))
        return medians
    finally:
        server.stop()


def _nbgrader(folder):
    """Submissions a minute and CPU seconds of each, of nbgrader in the environment of its own that its tests make."""
    commands = nbgrader_venv.commands()
    source = jupytext.reads(THREE_CELLS, fmt="py:percent")
    for number, cell in enumerate(source.cells):
        test, title = cell.metadata.get("title") == "test", cell.metadata.pop("title", None)
        if title:
            cell.metadata["nbgrader"] = {"grade": test, "solution": not test, "locked": test, "points": 1, "grade_id": f"c{number}", "schema_version": 3, "task": False}
    files = {"nbgrader_config.py": "c = get_config()\nc.CourseDirectory.course_id = 'c'\n", "source/one/one.ipynb": nbformat.writes(source)}
    files |= {f"submitted/student{number}/one/one.ipynb": nbformat.writes(source) for number in range(STUDENTS)}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    run = {"cwd": folder, "env": nbgrader_venv.environment(commands, folder), "check": True, "capture_output": True}
    subprocess.run([commands / "nbgrader", "generate_assignment", "one", "--create"], **run)
    begin, cpu = time.perf_counter(), _cpu()
    subprocess.run([commands / "nbgrader", "autograde", "one"], **run)
    return 60 * STUDENTS / (time.perf_counter() - begin), (_cpu() - cpu) / STUDENTS


def _cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
