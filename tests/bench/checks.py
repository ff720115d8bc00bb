"""Checks and release: how long a student waits for a self-check, and an instructor for the course."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from grader import self_check
from grader.course import UNITS, ready
from grader.instructors.collect import Submission
from grader.instructors.grade import record, work
from grader.instructors.release import notebook, release
from grader.instructors.known_answers import solved

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 3
TASKS = ("single_gpu", "multi_gpu", "multi_node")  # of the lecture
FIRST = "import time; begin = time.perf_counter(); from grader import check; check('multi_gpu', 'pytorch'); print('seconds', time.perf_counter() - begin)"


def measure(folder):
    """Rows (what, value, target), in seconds. All gaps are filled, the scripts' in the PyTorch track."""
    course = folder / "course"
    for room in ("exercises", "notebooks"):
        shutil.copytree(ROOT / room, course / room)
    for part in (part for parts in UNITS.values() for part in parts if part.track in ("pytorch", "")):
        text = solved(part.file)
        (course / part.file).write_text(notebook(text) if part.file.endswith(".ipynb") else text)
    rows = []
    done = subprocess.run([sys.executable, "-c", FIRST], cwd=course, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    rows.append(("seconds of the first check of multi_gpu, all filled", f"{float(done.stdout.split()[-1]):.2f}", "under 5"))
    for unit in ready():
        _seconds(lambda: self_check.check(unit, folder=course))
        seconds = min(_seconds(lambda: self_check.check(unit, folder=course)) for _ in range(ROUNDS))
        rows.append((f"seconds of a later check of {unit}, all filled", f"{seconds:.2f}", "under 1" if unit == "start" else "under 2"))
    for track in ("pytorch", "chainer"):
        seconds = _graded(folder / "handed in", track)
        rows.append((f"CPU seconds of all checks of tasks 1 to 3, hidden cases included, {track}", f"{seconds:.2f}", "under 3"))
    seconds = _seconds(lambda: release(ROOT / "solutions", folder / "released"))
    rows.append(("seconds to release the course", f"{seconds:.2f}", "under 3"))
    return rows


def _graded(folder, track):
    """CPU seconds to grade the solution's scripts and job scripts of TASKS in one track, with the libraries loaded: the engine's and the ranks'."""
    record.hand_in(folder, TASKS, 1)
    submission = Submission("student000", "student000", "", 1, 0.0, False, folder / "student000", "digest", (), None)
    pieces = [piece for unit in TASKS for piece in work.pieces(submission, unit, b"secret") if _counts(UNITS[unit][piece.part], track)]
    of_rounds = []
    for _ in range(1 + ROUNDS):  # the first one loads the libraries
        done = [work.run(piece, trusted=False) for piece in pieces]
        assert all(verdict["points"] == verdict["max_points"] for one in done for verdict in one.verdicts)
        of_rounds.append(sum(one.cost.engine + one.cost.ranks for one in done))
    return min(of_rounds[1:])


def _counts(part, track):
    return part.track == track or part.file.endswith(".sh")


def _seconds(action):
    with contextlib.redirect_stdout(io.StringIO()):
        begin = time.perf_counter()
        action()
        return time.perf_counter() - begin
