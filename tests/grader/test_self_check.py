"""What students see of a check: in a notebook's kernel, in a terminal, and when they stop it."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from jupyter_client.manager import start_new_kernel
from waiting import run_to_end

from grader import display, exercises, gaps, self_check
from grader.checks.check import Check, Criterion
from grader.course import UNITS, Part
from grader.exercises import solved
from grader.probes import FOR_NOTEBOOKS, FOR_SCRIPTS
from grader.verdict import FAILED, GRADER_FAULT, NOT_ATTEMPTED, NOT_FOUND, PASSED, STATUSES, Verdict

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "exercises/02_multi_gpu/pytorch/train_cifar_multi_gpu.py"
JOB = "exercises/02_multi_gpu/run_multi_gpu_training.sh"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}


@pytest.fixture
def course(tmp_path):
    """A student's folder: multi_gpu's job script filled, all else as it was given out."""
    shutil.copytree(ROOT / "exercises", tmp_path / "exercises")
    (tmp_path / JOB).write_text(solved(JOB))
    return tmp_path


@pytest.fixture
def kernel(course):
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(course), env=ENVIRONMENT)
    yield SimpleNamespace(manager=manager, client=client)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(kernel, code, meanwhile=lambda text: None):
    """Run a cell; returns all text and HTML that it put out, in order."""
    kernel.client.execute(code)
    found, deadline = [], time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            message = kernel.client.get_iopub_msg(timeout=1)
        except queue.Empty:
            continue
        content = message["content"]
        data = content.get("data", {})
        text = (
            content.get("text")
            or data.get("text/html")
            or data.get("text/plain")
            or "\n".join(content.get("traceback", ()))
        )
        if text and message["msg_type"] != "execute_input":
            found.append(text)
            meanwhile(text)
        if message["msg_type"] == "status" and content["execution_state"] == "idle":
            return found
    raise AssertionError(f"the cell did not end: {found}")


@pytest.mark.thorough
def test_a_notebook_shows_the_gap_being_checked_then_the_table_and_keeps_torch_out(kernel):
    found = run(kernel, 'from grader import check\nchecked = check("multi_gpu", track="pytorch")')
    assert any("Checking multi_gpu: sampler" in text for text in found) and "Checked in" in found[-1]
    table = run(kernel, "checked")[-1]
    assert "<table>" in table and "✓ passed" in table and "this gap is still to be filled" in table
    assert (
        run(kernel, "checked.points, checked.max_points == sum(v.max_points for v in checked.verdicts)")[-1]
        == "(3.5, True)"
    )
    assert run(kernel, "import sys; 'torch' in sys.modules")[-1] == "False"


@pytest.mark.thorough
def test_ctrl_c_stops_the_check_and_the_kernel_goes_on(kernel, course):
    answers = gaps.answers(exercises.solution(SCRIPT).read_text()) | {"device": "while True:\n    pass"}
    (course / SCRIPT).write_text(gaps.fill(exercises.given_out(SCRIPT), answers))
    run(kernel, "from grader import self_check")

    def interrupt(text):
        if "Checking multi_gpu: device" in text:
            kernel.manager.interrupt_kernel()

    found = run(kernel, 'self_check.check("multi_gpu")', interrupt)
    assert found[-1] == "the check was stopped: run it again at any time"
    (course / SCRIPT).write_text(exercises.given_out(SCRIPT).text)
    assert "this gap is still to be filled" in run(kernel, 'self_check.check("multi_gpu")')[-1]


def test_libraries_for_scripts_are_loaded_once_a_script_is_begun(course, monkeypatch):
    loaded = []
    monkeypatch.setattr(self_check, "judge", lambda *arguments, **options: iter(()))
    monkeypatch.setattr(self_check, "_server", loaded.append)
    self_check.check("multi_gpu", folder=course)
    (course / SCRIPT).write_text(solved(SCRIPT))
    self_check.check("multi_gpu", folder=course)
    assert loaded == [FOR_NOTEBOOKS, FOR_SCRIPTS]


@pytest.mark.thorough
def test_an_unknown_task_is_answered_with_the_list_in_a_sentence(kernel):
    found = run(kernel, 'from grader import check\ncheck("multigpu")')
    assert found == [f"there is no task 'multigpu': choose one of {', '.join(UNITS)}"]


def command(*arguments, cwd):
    return run_to_end([sys.executable, "-m", "grader", "check", *arguments], cwd=cwd, env=ENVIRONMENT)


@pytest.mark.thorough
def test_the_terminal_shows_the_same_and_its_status_says_whether_all_is_right(course):
    done = command("multi_gpu", cwd=course / "exercises/02_multi_gpu")
    assert done.returncode == 1 and done.stderr == ""
    assert done.stdout.startswith("multi_gpu, pytorch track: 3.5 of ")
    assert "– not attempted" in done.stdout
    assert "✓ passed" in done.stdout
    done = command("multigpu", cwd=course)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1


@pytest.mark.thorough
def test_ctrl_c_in_a_terminal_ends_a_check_that_would_go_on(course):
    answers = gaps.answers(exercises.solution(SCRIPT).read_text()) | {"device": "while True:\n    pass"}
    (course / SCRIPT).write_text(gaps.fill(exercises.given_out(SCRIPT), answers))
    terminal, end = os.openpty()
    words = [sys.executable, "-m", "grader", "check", "multi_gpu"]
    with subprocess.Popen(words, cwd=course, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=end) as process:
        os.close(end)
        seen = b""
        while b"Checking multi_gpu: device" not in seen:  # which comes first, and before the libraries are loaded
            seen += os.read(terminal, 1000)
        process.send_signal(signal.SIGINT)
        while b"Interrupted." not in seen:
            seen += os.read(terminal, 1000)
        assert process.wait(30) == 130 and b"Traceback" not in seen
    os.close(terminal)


# With tasks of our own
# ------------------------------------------------------------------------------------------------------------

GIVEN = gaps.exercise(
    "# %%\n# How many?\n### BEGIN SOLUTION count: a number\ncount = 3\n### END SOLUTION\nprint(count)\n", ".py"
)
NOTEBOOK = "notebooks/07_own.ipynb"


def counts_three(seen, case, expected):
    return None if "count = 3" in seen[0] else "count is not `3`: <b>look</b> & count"


@pytest.fixture
def own_task(monkeypatch, tmp_path):
    """A task "own" of one notebook with one gap; returns what is to be given for the shell's history."""
    check = Check(
        "count",
        "tests.grader.misbehaving:text",
        ({},),
        (Criterion("number", "the number", 2, counts_three, "Count again."),),
    )
    monkeypatch.setitem(UNITS, "own", (Part(NOTEBOOK, "", (check,)),))
    monkeypatch.setattr(exercises, "given_out", lambda file: GIVEN)
    history = []
    monkeypatch.setattr(self_check, "executed_cells", lambda: tuple(history))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exercises").mkdir()
    (tmp_path / "notebooks").mkdir()
    return history


def save(folder, source):
    cells = [{"cell_type": "code", "source": source, "metadata": {}}]
    (folder / NOTEBOOK).write_text(json.dumps({"nbformat": 4, "cells": cells}))


def cell(number):
    return f"# How many?\ncount = {number}\nprint(count)"


def test_where_no_editor_saves_the_notebook_what_was_run_last_counts(own_task, tmp_path):
    assert self_check.check("own").verdicts[0].status == "not found"
    save(tmp_path, cell(3))
    assert self_check.check("own").points == 2
    own_task += [cell(4)]
    assert self_check.check("own").points == 0
    own_task += ["count = 5", cell(3), "1 + 1"]
    assert self_check.check("own").points == 2


@pytest.mark.parametrize(("saved", "points"), [(3, 2), (4, 0)])
def test_in_an_editor_the_file_counts_and_cells_that_ran_otherwise_are_named(
    own_task, tmp_path, monkeypatch, saved, points
):
    monkeypatch.setattr(self_check, "in_editor", lambda: True)
    own_task += [cell(7 - saved)]
    save(tmp_path, cell(saved))
    checked = self_check.check("own")
    assert checked.points == points and "In the cell of `count`, the saved file" in checked.note
    assert "<code>count</code>" in display.html(checked) and "`count`" in display.text(checked)
    own_task += [f"# run again\n{cell(saved)}"]
    checked = self_check.check("own")
    assert (checked.points, checked.note) == (points, "")


def test_in_an_editor_without_the_courses_file_what_was_run_counts(own_task, monkeypatch):
    monkeypatch.setattr(self_check, "in_editor", lambda: True)
    own_task += [cell(3)]
    assert self_check.check("own").points == 2


def verdict(gap, status, points=0.0, message="", track="", **more):
    return Verdict("own", track, gap, "what", status, points, 2, message, "the hint", **more)


def test_whatever_a_students_code_says_is_escaped_and_code_is_marked():
    page = display.html(
        self_check.Checked(
            "own", (verdict("gap", FAILED, message="`a<b>` & <script>", output="<script>alert(1)</script>"),), 1.0
        )
    )
    assert "<code>a&lt;b&gt;</code> &amp; &lt;script&gt;" in page and "<script" not in page
    assert "the hint" in page and 'scope="col"' in page and "✗ failed" in page


@pytest.mark.parametrize("status", STATUSES)
def test_a_hint_comes_on_request_and_after_an_attempt_that_failed(status):
    failed = status not in (PASSED, GRADER_FAULT, NOT_ATTEMPTED, NOT_FOUND)
    checked = self_check.Checked("own", (verdict("a", status, message="what happened"),), 1.0)
    assert ("<summary>Hint</summary><div>the hint" in display.html(checked)) == failed
    assert "the hint" not in display.text(checked) and ("--hints" in display.text(checked)) == failed
    assert ("Hint: the hint" in display.text(replace(checked, hints=True))) == failed


def test_a_wrong_result_says_where_its_code_is(own_task, tmp_path):
    save(tmp_path, cell(4))
    checked = self_check.check("own")
    assert "Look at the cell with `count =`." in display.text(checked)
    assert "Look at the cell with <code>count =</code>." in display.html(checked)


def test_gaps_and_files_that_are_named_are_checked_alone(own_task, tmp_path):
    save(tmp_path, cell(3))
    for name in ("count", "07_own.ipynb"):
        assert [verdict.gap for verdict in self_check.check("own", name).verdicts] == ["count"]
    with pytest.raises(self_check.CheckError, match="own has no gap or file 'counts': choose from 07_own.ipynb, count"):
        self_check.check("own", "counts")


def test_of_a_unit_with_several_files_only_what_is_named_is_checked(course, monkeypatch):
    asked = []
    monkeypatch.setattr(self_check, "judge", lambda unit, parts, *rest, **options: asked.append(parts) or iter(()))
    self_check.check("multi_gpu", "hanging.py", "sampler", "speed_up", track="pytorch", folder=course)
    assert [[check.gap for check in part.checks] for part in asked[0]] == [["sampler"], ["report"], ["speed_up"]]


def test_a_long_sentence_of_several_gaps_stands_once():
    sentence = "there is no file exercises/02_multi_gpu/hanging.py"
    found = tuple(verdict(gap, NOT_FOUND, message=sentence) for gap in "abc")
    checked = self_check.Checked("own", (*found, verdict("d", NOT_FOUND, message="another")), 1.0)
    for page in (display.html(checked), display.text(checked)):
        assert (page.count(sentence), page.count("as above"), page.count("another")) == (1, 2, 1)
    to_fill = tuple(verdict(gap, NOT_ATTEMPTED, message="this gap is still to be filled") for gap in "abc")
    assert display.text(self_check.Checked("own", to_fill, 1.0)).count("still to be filled") == 3


def test_what_could_not_be_graded_is_no_zero():
    checked = self_check.Checked("own", (verdict("a", GRADER_FAULT, None), verdict("b", PASSED, 2)), 1.0)
    assert checked.points == 2 and "not graded" in display.text(checked) and "run it again" in display.summary(checked)


def test_a_gap_without_points_says_so():
    checked = self_check.Checked("own", (replace(verdict("a", PASSED), max_points=0), verdict("b", PASSED, 2)), 1.0)
    for page in (display.html(checked), display.text(checked)):
        assert page.count("starred, no points") == 1 and page.count("2 of 2") == 2 and "0 of 0" not in page


def test_a_section_without_points_is_not_called_0_of_0():
    checked = self_check.Checked("own", (replace(verdict("a", PASSED, 0), max_points=0),), 1.0)
    assert display.summary(checked) == "own: starred, no points" and "0 of 0" not in display.html(checked)


def test_a_table_has_a_column_of_what_to_look_at_only_if_there_is_something():
    tables = [
        display.html(self_check.Checked("own", verdicts, 1.0))
        for verdicts in ((verdict("a", PASSED, 2),), (verdict("a", PASSED, 2), verdict("b", FAILED, message="why")))
    ]
    assert [table.count("What to look at") for table in tables] == [0, 1]
    assert [(table.count("<td"), table.count('scope="col"')) for table in tables] == [(3, 4), (8, 5)]


def test_of_two_tracks_the_one_attempted_is_shown(own_task, monkeypatch):
    found = [
        verdict("a", NOT_ATTEMPTED, track="pytorch"),
        verdict("a", FAILED, track="chainer"),
        verdict("n", PASSED, 2),
    ]
    monkeypatch.setattr(self_check, "judge", lambda *arguments, **options: iter(found))
    checked = self_check.check("own")
    assert [verdict.track for verdict in checked.verdicts] == ["chainer", ""]
    assert repr(checked) == "2", "what nbgrader takes for the value of a cell"
