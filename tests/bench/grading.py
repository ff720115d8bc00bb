"""Grading: submissions a minute against nbgrader on an equivalent assignment, what one costs, and how soon the first
result comes."""

import os
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import jupytext
import nbformat
import psutil

from answers.known import of_unit
from grader.course import UNITS
from grader.exercises import solved
from grader.instructors import hidden
from grader.instructors.grade import work
from grader.instructors.release import notebook
from grader.judging import judge
from grader.probes import FOR_SCRIPTS
from grader.sandbox import Server
from grader.verdict import FAILED, PASSED
from handson import linux
from tests.grader import nbgrader_venv

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = UNITS["single_gpu"][0].file
STUDENTS, MANY, ROUNDS = 20, 100, 2
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
    linux.adopt_orphans()  # see _cpu
    theirs, their_cpu = _nbgrader(folder / "nbgrader")
    rows = [("nbgrader 0.9.6: submissions a minute; CPU seconds of each", f"{theirs:.0f}; {their_cpu:.2f}", "")]
    for name, file, target in (
        ("notebook, 4 gaps", "notebooks/01_single_gpu.ipynb", 20),
        ("script, 5 gaps and a run", SCRIPT, 12),
    ):
        cpu = _cpu()
        seconds, first, _ = _ours(_class(folder / name / "handed_in", file), folder / name / "graded", 2)
        rows.append(
            (f"ours ({name}), sandboxed, 2 engines: submissions a minute", f"{60 * STUDENTS / seconds:.0f}", "")
        )
        rows.append(
            (
                f"  of nbgrader's, {STUDENTS} submissions, of which the cluster's start is half",
                f"{60 * STUDENTS / seconds / theirs:.1f}",
                "",
            )
        )
        rows.append(("  CPU seconds of each, the cluster's included", f"{(_cpu() - cpu) / STUDENTS:.2f}", ""))
        rows.append(("  seconds from the command to the first result", f"{first:.1f}", "<= 5"))
        seconds, _, _ = _ours(
            _class(folder / f"{name}, many" / "handed_in", file, MANY), folder / f"{name}, many" / "graded", 2
        )
        rows.append(
            (
                f"  of nbgrader's, {MANY} submissions with the cluster's start",
                f"{60 * MANY / seconds / theirs:.1f}",
                f">= {target}",
            )
        )
    alone, two, both = _steady(folder / "many")
    rows.append(
        ("steady state, submissions (script) a minute: 2 engines over 2 x 1 engine", f"{two / alone / 2:.2f}", ">= 0.9")
    )
    rows.append(
        ("  two graders of 1 engine at once, on half of the cores each, over 2 x 1", f"{both / alone / 2:.2f}", "")
    )
    server = Server(FOR_SCRIPTS)
    try:
        rows.append(
            (
                "CPU seconds of all checks of tasks 1 to 3, hidden cases too, one track",
                f"{_all_checks(server):.2f}",
                "< 3",
            )
        )
        rows.append(
            (
                "milliseconds of an empty check of one rank, sandboxed; plain",
                "; ".join(f"{ms:.0f}" for ms in _empty(server)),
                "",
            )
        )
    finally:
        server.stop()
    return rows


def _class(folder, file, students=STUDENTS):
    """Hand in for some students, right and wrong answers in turn."""
    unit, part = next((unit, part) for unit, parts in UNITS.items() for part in parts if part.file == file)
    mistakes = [
        mistake for mistake in of_unit(unit, part.folder)[0] if mistake.gap in {check.gap for check in part.checks}
    ]
    mistakes = [mistake for mistake in mistakes if mistake.status == FAILED]
    for number in range(students):
        mistake = mistakes[number % len(mistakes)]
        text = solved(file, **({mistake.gap: mistake.code} if number % 2 else {})) + f"# {number}\n"
        path = folder / f"student{number:03}" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(notebook(text) if path.suffix == ".ipynb" else text)
    return folder


def _ours(submissions, out, engines, cores=None):
    """Seconds of the whole command, on some cores, and to the first result; and submissions a minute from then to the
    last one."""
    command = [
        sys.executable,
        "-m",
        "grader",
        "grade",
        submissions,
        "--out",
        out,
        "--unit",
        "single_gpu",
        "--engines",
        str(engines),
    ]
    begin, came = time.perf_counter(), []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as grader:
        os.sched_setaffinity(grader.pid, cores or os.sched_getaffinity(0))
        for line in grader.stdout:
            if " pieces graded" in line:
                came.append((time.perf_counter() - begin, int(line.split()[0])))
    (first, some), (last, all_) = came[0], came[-1]
    return time.perf_counter() - begin, first, 60 * (all_ - some) / (last - first)


def _steady(folder):
    """Submissions a minute of one engine, of two, and of two graders that run at once with an engine and half of the
    cores each: the best of some rounds."""
    submissions, cores = _class(folder / "handed_in", SCRIPT, MANY), sorted(os.sched_getaffinity(0))

    def rate(engines, out, cores=None):
        return _ours(submissions, folder / out, engines, cores)[2]

    best = [0, 0, 0]
    for number in range(ROUNDS):
        with ThreadPoolExecutor() as at_once:
            rates = (
                rate(1, f"alone{number}"),
                rate(2, f"two{number}"),
                sum(at_once.map(rate, [1, 1], [f"one{number}", f"other{number}"], [cores[::2], cores[1::2]])),
            )
        best = list(map(max, best, rates))
    return best


def _all_checks(server):
    """CPU seconds, in this process and below the server, of checking right answers of the PyTorch track, when all is
    loaded."""
    units = {
        unit: [part for part in UNITS[unit] if part.track in ("pytorch", "")]
        for unit in ("single_gpu", "multi_gpu", "multi_node")
    }
    used = []
    for _ in range(ROUNDS + 1):  # in the first, the oracles are asked
        for unit, parts in units.items():
            verdicts = list(judge(unit, parts, solved, server, hidden.cases(), work.readable(), seed=1))
            assert {verdict.status for verdict in verdicts} == {PASSED}, verdicts
        server.run("grader.probes.cases:run_all", [[]])  # begins when the processes of all runs before are counted
        below = psutil.Process(server.process.pid).cpu_times()
        used.append(sum(below[:4]) + time.process_time())
    return min(later - earlier for earlier, later in pairwise(used))


def _empty(server):
    """Milliseconds of a check that does nothing: in a sandbox, and without one."""
    for readable in (work.readable(), None):
        times = []
        for _ in range(30):
            begin = time.perf_counter()
            server.run("grader.probes.cases:run_all", [[]], readable=readable)
            times.append(1000 * (time.perf_counter() - begin))
        yield statistics.median(times[5:])


def _nbgrader(folder):
    """Submissions a minute and CPU seconds of each, of nbgrader in the environment of its own that its tests make."""
    commands = nbgrader_venv.commands()
    source = jupytext.reads(THREE_CELLS, fmt="py:percent")
    for number, cell in enumerate(source.cells):
        test, title = cell.metadata.get("title") == "test", cell.metadata.pop("title", None)
        if title:
            cell.metadata["nbgrader"] = {
                "grade": test,
                "solution": not test,
                "locked": test,
                "points": 1,
                "grade_id": f"c{number}",
                "schema_version": 3,
                "task": False,
            }
    files = {
        "nbgrader_config.py": "c = get_config()\nc.CourseDirectory.course_id = 'c'\n",
        "source/one/one.ipynb": nbformat.writes(source),
    }
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
    """CPU seconds of all processes that were started below this one, which inherits those that others leave behind;
    waits for their end."""
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
