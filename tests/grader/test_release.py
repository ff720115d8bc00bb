"""Exercises are what release makes of the solutions; what it cannot release, it refuses with file and line."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.gaps import GapError, exercise
from grader.release import release

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """def speed(images, seconds):
    ### BEGIN SOLUTION speed: images a second, as `result`
    result = images / seconds
    ### END SOLUTION
    return result
"""


def test_the_exercises_are_a_fresh_release_of_the_solutions():
    release(ROOT / "solutions", ROOT, check=True, say=lambda line: None)


def test_release_is_deterministic_and_keeps_modes(tmp_path):
    for name in ("once", "twice", "twice"):  # over an older release too
        release(ROOT / "solutions", tmp_path / name, say=lambda line: None)
    files = {folder: sorted(path.relative_to(tmp_path / folder) for path in (tmp_path / folder).rglob("*")) for folder in ("once", "twice")}
    assert files["once"] == files["twice"]
    for path in files["once"]:
        if (tmp_path / "once" / path).is_file():
            assert (tmp_path / "once" / path).read_bytes() == (tmp_path / "twice" / path).read_bytes()
    assert (tmp_path / "once/exercises/02_multi_gpu/run_multi_gpu_training.sh").stat().st_mode & 0o111
    assert not (tmp_path / "once/exercises/02_multi_gpu/run_multi_gpu_training.sh").is_symlink(), "students edit a copy of their own"


def test_a_gap_shows_its_hint_and_raises_its_name():
    text = exercise(SOURCE, ".py").text
    assert "images / seconds" not in text
    assert "    # PUT YOUR CODE: images a second, as `result`\n" in text
    namespace = {}
    exec(text, namespace)
    with pytest.raises(NotImplementedError, match="PUT YOUR CODE: speed"):
        namespace["speed"](1, 2)


@pytest.mark.parametrize("path", sorted((ROOT / "exercises").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_exercise_is_python_without_a_trace_of_the_solution(path):
    text = path.read_text()
    ast.parse(text)
    assert "SOLUTION" not in text and "###" not in text


@pytest.mark.parametrize("path", sorted((ROOT / "exercises").rglob("run_*.sh")), ids=lambda path: path.name)
def test_a_job_script_asks_for_its_resources(path):
    text = path.read_text()
    assert "#PBS -q (queue)" in text and "lecture" not in text and not re.search(r"=\d", text)
    assert subprocess.run(["bash", "-n", path]).returncode == 0


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("### BEGIN SOLUTION a: hint\n", 1, "never ended"),
        ("x\n### END SOLUTION\n", 2, "without a BEGIN"),
        ("### BEGIN SOLUTION a: hint\n### BEGIN SOLUTION b: hint\n### END SOLUTION\n", 2, "inside the one of line 1"),
        ("### BEGIN SOLUTION a: hint\n### END SOLUTION\nx\n### BEGIN SOLUTION a: hint\n### END SOLUTION\n", 4, "called a already"),
        ("### BEGIN SOLUTION a: hint\n### END SOLUTION\n\n### BEGIN SOLUTION b: hint\n### END SOLUTION\n", 4, "touches the gap a"),
        ("### BEGIN SOLUTION\nx\n### END SOLUTION\n", 1, "no marker"),
        ("### BEGIN SOLUTION a:\nx\n### END SOLUTION\n", 1, "no marker"),
        ("## BEGIN SOLUTION a: hint\n", 1, "no marker"),
        ("### BEGIN SOLUTON a: hint\n", 1, "no marker"),
        ("### Begin Solution a: hint\n", 1, "no marker"),
        ("### BEGIN SOLUTION a: hint\nx\n### END SOLUTIONS\n", 3, "no marker"),
        ("### GIVEN x\n", 1, "no marker"),
    ],
)
def test_a_marker_that_is_not_right_is_refused_with_its_line(text, line, words):
    with pytest.raises(GapError) as refused:
        exercise(text, ".py", "task.py")
    assert f"task.py, line {line}" in str(refused.value) and words in str(refused.value)


def test_a_refused_release_leaves_the_old_exercises(tmp_path):
    solutions = tmp_path / "solutions"
    solutions.mkdir()
    (solutions / "a.py").write_text(SOURCE)
    release(solutions, tmp_path, say=lambda line: None)
    before = (tmp_path / "exercises/a.py").read_text()
    (solutions / "a.py").write_text("### BEGIN SOLUTION a: hint\n")
    with pytest.raises(GapError):
        release(solutions, tmp_path, say=lambda line: None)
    assert (tmp_path / "exercises/a.py").read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exercises", "notebooks", "solutions"]


def test_stale_exercises_are_named(tmp_path):
    shutil.copytree(ROOT / "exercises", tmp_path / "exercises")
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    (tmp_path / "exercises/01_single_gpu/extra.py").write_text("pass\n")
    command = [sys.executable, "-m", "grader", "release", "--check", "--course", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "extra.py" in done.stderr and done.stderr.count("\n") == 1


def test_a_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch):
    import nbclient
    import nbformat

    shutil.copytree(ROOT / "exercises/00_start", tmp_path / "exercises/00_start")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("HANDSON_PBS_HOME", str(tmp_path / "pbs"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    notebook = nbformat.read(ROOT / "notebooks/00_start.ipynb", as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path / "notebooks"}}).execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "This is job 0." in printed and "first_job" in printed and "node1" in printed
