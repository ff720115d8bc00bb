"""Exercises are what release makes of the solutions; what it cannot release, it refuses with file and line."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.checks.check import Check, Criterion
from grader.course import UNITS, Part
from grader.course import most_points as points
from grader.gaps import GapError, answers, exercise
from grader.instructors.release import release
from grader.instructors.rules import RulesError

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """def speed(images, seconds):
    ### BEGIN SOLUTION speed: images a second, as `result`
    result = images / seconds
    ### END SOLUTION
    return result
"""


def test_the_exercises_are_a_fresh_release_of_the_solutions():
    release(ROOT / "solutions", ROOT, check=True, say=lambda line: None)


@pytest.mark.thorough
def test_release_is_deterministic_and_keeps_modes(tmp_path):
    for name in ("once", "twice", "twice"):  # over an older release too
        release(ROOT / "solutions", tmp_path / name, say=lambda line: None)
    files = {
        folder: sorted(path.relative_to(tmp_path / folder) for path in (tmp_path / folder).rglob("*"))
        for folder in ("once", "twice")
    }
    assert files["once"] == files["twice"]
    for path in files["once"]:
        if (tmp_path / "once" / path).is_file():
            assert (tmp_path / "once" / path).read_bytes() == (tmp_path / "twice" / path).read_bytes()
    assert (tmp_path / "once/exercises/02_multi_gpu/run_multi_gpu_training.sh").stat().st_mode & 0o111
    assert not (tmp_path / "once/exercises/02_multi_gpu/run_multi_gpu_training.sh").is_symlink(), (
        "students edit a copy of their own"
    )


def test_a_gap_shows_its_hint_and_raises_its_name():
    text = exercise(SOURCE, ".py").text
    assert "images / seconds" not in text
    assert "    # PUT YOUR CODE: images a second, as `result`\n" in text
    namespace = {}
    exec(text, namespace)
    with pytest.raises(NotImplementedError, match="PUT YOUR CODE: speed"):
        namespace["speed"](1, 2)


def test_code_that_is_given_to_be_mended_runs_and_is_no_part_of_the_solution():
    source = SOURCE.replace(
        "    ### END",
        "    ### GIVEN result = 0\n    ### GIVEN for image in range(images):\n    ### GIVEN     result += 1 / seconds\n"
        "    ### END",
    )
    text, namespace = exercise(source, ".py").text, {}
    assert (
        "images / seconds" not in text
        and "raise" not in text
        and "    # PUT YOUR CODE: images a second, as `result`\n    result = 0\n" in text
    )
    exec(text, namespace)
    assert namespace["speed"](6, 2) == 3
    assert answers(source) == {"speed": "result = images / seconds"}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "exercises").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_exercise_is_python_without_a_trace_of_the_solution(path):
    text = path.read_text()
    ast.parse(text)
    assert "SOLUTION" not in text and "###" not in text


@pytest.mark.parametrize("path", sorted((ROOT / "exercises").rglob("run_*_training.sh")), ids=lambda path: path.name)
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
        (
            "### BEGIN SOLUTION a: hint\n### END SOLUTION\nx\n### BEGIN SOLUTION a: hint\n### END SOLUTION\n",
            4,
            "called a already",
        ),
        (
            "### BEGIN SOLUTION a: hint\n### END SOLUTION\n\n### BEGIN SOLUTION b: hint\n### END SOLUTION\n",
            4,
            "touches the gap a",
        ),
        ("### BEGIN SOLUTION\nx\n### END SOLUTION\n", 1, "not a marker"),
        ("### BEGIN SOLUTION a:\nx\n### END SOLUTION\n", 1, "has no hint"),
        ("## BEGIN SOLUTION a: hint\n", 1, "not a marker"),
        ("### BEGIN SOLUTON a: hint\n", 1, "not a marker"),
        ("### Begin Solution a: hint\n", 1, "not a marker"),
        ("### BEGIN SOLUTION a: hint\nx\n### END SOLUTIONS\n", 3, "not a marker"),
        ("### GIVEN x\n", 1, "not a marker"),
    ],
)
def test_a_marker_that_is_not_right_is_refused_with_its_line(text, line, words):
    with pytest.raises(GapError) as refused:
        exercise(text, ".py", "task.py")
    assert f"task.py, line {line}" in str(refused.value) and words in str(refused.value)


def release_of(tmp_path, file, text):
    """Release a solution that is the only one."""
    (tmp_path / "solutions" / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "solutions" / file).write_text(text)
    release(tmp_path / "solutions", tmp_path, say=lambda line: None)


def test_a_gap_without_a_check_is_refused_with_its_line(tmp_path):
    with pytest.raises(
        GapError,
        match=r"02_multi_gpu/own.py, line 2: the gap speed has no check; add one to grader/units, for exercises/",
    ):
        release_of(tmp_path, "02_multi_gpu/own.py", SOURCE)


def test_a_check_without_its_gap_is_refused(tmp_path):
    name = "02_multi_gpu/run_multi_gpu_training.sh"
    unmarked = "".join(
        line
        for line in (ROOT / "solutions" / name).read_text().splitlines(keepends=True)
        if not line.startswith("### ")
    )
    with pytest.raises(GapError, match=r"run_multi_gpu_training.sh has no gap \w+, but grader/units has a check of it"):
        release_of(tmp_path, name, unmarked)


def test_a_directive_that_cannot_be_read_is_refused_with_its_file(tmp_path):
    with pytest.raises(
        GapError,
        match=(
            "solutions/02_multi_gpu/run_own_profile.sh has a directive error: -l select='1: close its quotation marks"
        ),
    ):
        release_of(tmp_path, "02_multi_gpu/run_own_training.sh", "#!/bin/bash\n")
        release_of(tmp_path, "02_multi_gpu/run_own_profile.sh", "#!/bin/bash\n#PBS -l select='1\n")


def test_a_gap_that_is_all_of_its_cell_is_refused_since_it_could_not_be_found_again(tmp_path, monkeypatch):
    cell = "# %%\n### BEGIN SOLUTION a: hint\na = 1\n### END SOLUTION\n"
    check = Check("a", "any:probe", (), (Criterion("it", "it", 1.5, lambda *seen: None, "hint"),))
    monkeypatch.setitem(UNITS, "own", (Part("notebooks/07_own.ipynb", "", (check,)),))
    with pytest.raises(GapError, match="07_own.py, line 5: the gap a is all of its cell"):
        release_of(tmp_path, "07_own/07_own.py", f"# %%\nx = 1\n\n{cell}")
    release_of(tmp_path, "07_own/07_own.py", f'{cell}print(a)\n\n# %% [markdown]\n# text\n\n# %%\ncheck("own")\n')
    gap, words, checks = json.loads((tmp_path / "notebooks/07_own.ipynb").read_text())["cells"]
    common = {"schema_version": 3, "task": False}
    assert gap["metadata"] == {
        "nbgrader": common | {"grade": False, "solution": True, "locked": False, "grade_id": "a"}
    }
    assert words["metadata"] == {}
    graded = {"grade": True, "solution": False, "locked": True, "grade_id": "check-own", "points": 1.5}
    assert checks["metadata"] == {"nbgrader": common | graded, "editable": False, "deletable": False}


def test_the_check_that_closes_a_notebook_of_two_has_the_points_of_the_files_that_it_names(tmp_path, monkeypatch):
    names = {"a": "07_own", "b": "07b_own"}
    checks = {
        gap: Check(gap, "any:probe", (), (Criterion("it", "it", worth, lambda *seen: None, "hint"),))
        for gap, worth in (("a", 1), ("b", 2), ("c", 4))
    }
    parts = [Part(f"notebooks/{names[gap]}.ipynb", "", (checks[gap],)) for gap in names]
    monkeypatch.setitem(UNITS, "own", (*parts, Part("exercises/07_own/run.py", "", (checks["c"],))))
    release_of(tmp_path, "07_own/run.py", "### BEGIN SOLUTION c: hint\nc = 1\n### END SOLUTION\nprint(c)\n")
    found = {}
    for gap, name in names.items():
        cell = f"# %%\n### BEGIN SOLUTION {gap}: hint\n{gap} = 1\n### END SOLUTION\nprint({gap})\n"
        files = f'"{name}.ipynb", "run.py"' if gap == "b" else f'"{name}.ipynb"'
        text = f'{cell}\n# %%\ncheck("own", "{gap}")\n\n# %%\ncheck(\n    "own", {files}\n)\n'
        release_of(tmp_path, f"07_own/{name}.py", text)
        cells = json.loads((tmp_path / f"notebooks/{name}.ipynb").read_text())["cells"]
        found[name] = [cell["metadata"].get("nbgrader", {}).get("points") for cell in cells]
    assert found == {"07_own": [None, None, 1], "07b_own": [None, None, 6]}


def test_two_files_of_a_task_may_not_have_gaps_of_one_name(tmp_path, monkeypatch):
    check = Check("a", "any:probe", (), (Criterion("it", "it", 1, lambda *seen: None, "hint"),))
    monkeypatch.setitem(
        UNITS, "own", tuple(Part(f"exercises/07_own/{name}.py", "", (check,)) for name in ("one", "two"))
    )
    gap = "### BEGIN SOLUTION a: hint\na = 1\n### END SOLUTION\n"
    release_of(tmp_path, "07_own/one.py", gap)
    with pytest.raises(GapError, match="two.py, line 2: there is a gap called a in exercises/07_own/one.py already"):
        release_of(tmp_path, "07_own/two.py", f"\n{gap}")


def test_a_unit_is_worth_one_track_and_what_both_share():
    parts = UNITS["multi_gpu"]
    worth = {
        track: sum(c.points for part in parts if part.track == track for check in part.checks for c in check.criteria)
        for track in ("pytorch", "chainer", "")
    }
    assert points("multi_gpu") == worth[""] + max(worth["pytorch"], worth["chainer"])


def test_job_scripts_are_fitted_to_a_site_and_the_choice_is_noted(tmp_path):
    (tmp_path / "jobs/sites").mkdir(parents=True)
    said = []
    release(ROOT / "solutions", tmp_path, say=said.append, site="reedbush")
    assert (
        tmp_path / "jobs/sites/CHOSEN"
    ).read_text() == "reedbush\n" and "The site is now reedbush: checks and grading" in said[-1]
    assert said[-1].endswith("python -m handson site use reedbush --solutions")
    assert "#PBS -q h-lecture\n" in (tmp_path / "exercises/00_start/first_job.sh").read_text()
    text = (tmp_path / "exercises/02_multi_gpu/run_multi_gpu_training.sh").read_text()
    assert "module load cuda\n" in text and "#PBS -q (queue)\n" in text


@pytest.mark.thorough
@pytest.mark.parametrize(
    "option",
    [
        ["--site", "nosuch"],
        ["--bundle", "/dev/null/course.zip"],
        ["--bundle", "course.tar.gz"],
        ["--bundle", "nowhere/course.zip"],
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence(option, tmp_path):
    command = [sys.executable, "-m", "grader", "release", "--course", str(tmp_path), *option]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stderr.startswith("grader release: ")
    assert list(tmp_path.iterdir()) == [] and not (ROOT / "nowhere").exists()


def test_a_refused_release_leaves_the_old_exercises(tmp_path):
    solutions = tmp_path / "solutions"
    solutions.mkdir()
    (solutions / "a.py").write_text("pass\n")
    release(solutions, tmp_path, say=lambda line: None)
    before = (tmp_path / "exercises/a.py").read_text()
    (solutions / "a.py").write_text("### BEGIN SOLUTION a: hint\n")
    with pytest.raises(GapError):
        release(solutions, tmp_path, say=lambda line: None)
    assert (tmp_path / "exercises/a.py").read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exercises", "notebooks", "solutions"]


def test_a_release_loses_nothing_that_it_did_not_write(tmp_path):
    solutions, exercises, said = tmp_path / "solutions", tmp_path / "exercises", []
    solutions.mkdir()
    (solutions / "a.py").write_text("pass\n")
    (solutions / "same.py").write_text("pass\n")
    release(solutions, tmp_path, say=lambda line: None)
    mine = {"a.py": "edited\n", "own/notes.txt": "mine\n", "results/loss.txt": "0.1\n", "train.o12": "printed\n"}
    for name, text in mine.items():
        (exercises / name).parent.mkdir(exist_ok=True)
        (exercises / name).write_text(text)
    release(solutions, tmp_path, say=said.append)
    [kept] = tmp_path.glob("exercises.before-*")
    assert {str(path.relative_to(kept)): path.read_text() for path in kept.rglob("*") if path.is_file()} == {
        name: mine[name] for name in ("a.py", "own/notes.txt")
    }
    assert sorted(str(path.relative_to(exercises)) for path in exercises.rglob("*")) == [
        ".released",
        "a.py",
        "results",
        "results/loss.txt",
        "same.py",
        "train.o12",
    ]
    assert (exercises / "a.py").read_text() == "pass\n" and any(str(kept) in line for line in said)


def test_what_a_release_wrote_itself_is_not_kept_by_the_next_one(tmp_path):
    solutions = tmp_path / "solutions"
    (solutions / "old").mkdir(parents=True)
    (solutions / "old/b.py").write_text("pass\n")
    for text in ("1\n", "2\n", "3\n"):
        (solutions / "a.py").write_text(text)
        release(solutions, tmp_path, say=lambda line: None)
    shutil.rmtree(solutions / "old")
    release(solutions, tmp_path, say=lambda line: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exercises", "notebooks", "solutions"]
    assert sorted(path.name for path in (tmp_path / "exercises").iterdir()) == [".released", "a.py"]


@pytest.mark.parametrize("record", ["", "x\n", "0  a.py\n"])
def test_without_a_record_of_the_last_release_everything_is_kept(tmp_path, record):
    (tmp_path / "solutions").mkdir()
    for text in ("1\n", "2\n"):
        (tmp_path / "solutions/a.py").write_text(text)
        release(tmp_path / "solutions", tmp_path, say=lambda line: None)
        (tmp_path / "exercises/.released").write_text(record)
    assert [path.read_text() for path in tmp_path.glob("exercises.before-*/a.py")] == ["1\n"]


def test_nobody_has_changed_what_a_clone_has(tmp_path):
    """A clone has the exercises of the site local, and no record of their release."""
    shutil.copytree(
        ROOT / "solutions/02_multi_gpu",
        tmp_path / "solutions/02_multi_gpu",
        ignore=shutil.ignore_patterns("results", "__pycache__"),
    )
    release(tmp_path / "solutions", tmp_path, say=lambda line: None, site="local")
    for room in ("exercises", "notebooks"):
        (tmp_path / room / ".released").unlink()
    profile, mine = (
        tmp_path / "exercises/02_multi_gpu" / name for name in ("run_multi_gpu_profile.sh", "run_multi_gpu_training.sh")
    )
    before = profile.read_text()
    mine.write_text("mine\n")
    release(tmp_path / "solutions", tmp_path, say=lambda line: None, site="reedbush")
    assert profile.read_text() != before, "its modules"
    assert [path.name for path in tmp_path.glob("*.before-*/*/*")] == [mine.name]


@pytest.mark.thorough
def test_stale_exercises_are_named(tmp_path):
    shutil.copytree(ROOT / "exercises", tmp_path / "exercises")
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    (tmp_path / "exercises/01_single_gpu/extra.py").write_text("pass\n")
    command = [sys.executable, "-m", "grader", "release", "--check", "--course", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "extra.py" in done.stderr and done.stderr.count("\n") == 1


def test_a_notebooks_head_has_points_and_deadline_where_the_course_has_rules(tmp_path):
    solutions, course = tmp_path / "solutions", tmp_path / "course"
    shutil.copytree(ROOT / "solutions/00_start", solutions / "00_start")
    course.mkdir()
    release(solutions, course, say=lambda line: None)
    notebook = course / "notebooks/00_start.ipynb"
    assert notebook.read_bytes() == (ROOT / "notebooks/00_start.ipynb").read_bytes()
    (course / "course.toml").write_text('zone = "Europe/Berlin"\n[units.start]\npoints = 7\ndue = 2026-11-20\n')
    with pytest.raises(GapError, match="notebooks is not what the solutions give"):
        release(solutions, course, check=True)
    release(solutions, course, say=lambda line: None)
    first = "".join(json.loads(notebook.read_text())["cells"][0]["source"])
    assert first.startswith(
        "# Start here\n\n**7 points. Due Friday, 20 November 2026, 24:00 (Europe/Berlin).** The check counts in points"
        " of its own"
    )
    assert "\n\nIn this course you train one network" in first
    (course / "course.toml").write_text("site = 'reedbush'")
    assert release(solutions, course, say=lambda line: None).site == "reedbush"
    assert release(solutions, course, say=lambda line: None, site="local").site == "local"
    (course / "course.toml").write_text("tilte = 'x'")
    with pytest.raises(RulesError, match="did you mean 'title'"):
        release(solutions, course)
