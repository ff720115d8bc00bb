"""nbgrader itself, at version 0.9.6, takes the built notebooks: it validates them, autogrades them, and gives partial
credit.

It lives in an environment of its own (nbgrader_venv); the notebooks run in ours.
"""

import csv
import shutil
from pathlib import Path

import nbgrader_venv
import pytest

from grader import gaps
from grader.course import most_points as points
from grader.exercises import folder_of_notebook, solved
from grader.instructors.release import closing_checks, notebook

ROOT = Path(__file__).resolve().parents[2]
JOB = "exercises/02_multi_gpu/run_multi_gpu_training.sh"
OWN = """# %%
# How many?
### BEGIN SOLUTION count: a number
count = 3
### END SOLUTION

# %%
from grader import check

check("multi_gpu")
"""
BUILT = {
    path.stem: path.read_text()
    for path in sorted((ROOT / "solutions").glob("*/*.py"))
    if folder_of_notebook(path.stem) == path.parent.name
} | {"07_own": OWN}

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def nbgrader():
    """The folder with nbgrader's commands."""
    return nbgrader_venv.commands()


@pytest.fixture(scope="module")
def course(nbgrader, tmp_path_factory):
    """An nbgrader course whose assignment "notebooks" has every notebook, and one of our own; run(*words) runs nbgrader
    in it.

    alice has filled the gaps of the first notebook and of our own, and multi_gpu's job script; bob has filled nothing.
    """
    home = tmp_path_factory.mktemp("nbgrader")
    environment = nbgrader_venv.environment(nbgrader, home) | {"HANDSON_PBS_HOME": str(home / "pbs")}
    folder = home / "course"
    write(
        folder / "nbgrader_config.py",
        'c = get_config()\nc.CourseDirectory.course_id = "course"\nc.ExecutePreprocessor.timeout = 300\n',
    )

    for name, source in BUILT.items():
        write(folder / f"source/notebooks/{name}.ipynb", notebook(source))
    for student in ("alice", "bob"):
        for name in ("00_start", "07_own"):
            given = gaps.exercise(BUILT[name], ".py")
            script = gaps.fill(given, gaps.answers(BUILT[name])) if student == "alice" else given.text
            write(folder / f"submitted/{student}/notebooks/{name}.ipynb", notebook(script))
            write(folder / f"autograded/{student}/ours/{name}.ipynb", notebook(script))  # to validate
        # beside where notebooks will be run
        shutil.copytree(ROOT / "exercises", folder / f"autograded/{student}/exercises")
    (folder / "autograded/alice" / JOB).write_text(solved(JOB))
    with nbgrader_venv.running(nbgrader, folder, environment) as run:
        done = run("generate_assignment", "notebooks", "--create")
        assert done.returncode == 0, done.stderr
        yield folder, run


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_nbgrader_takes_our_metadata_as_it_is(course):
    """It adds its checksums, and changes nothing."""
    import nbformat  # takes a second, which all tests would wait for

    for name, source in BUILT.items():
        theirs = nbformat.read(course[0] / f"release/notebooks/{name}.ipynb", as_version=4)
        ours = nbformat.reads(notebook(gaps.exercise(source, ".py").text), as_version=4)
        for one, other in zip(theirs.cells, ours.cells, strict=True):
            assert other.metadata.get("nbgrader", {}).items() <= one.metadata.get("nbgrader", {}).items()


def test_autograde_gives_the_points_of_the_checks(course):
    folder, run = course
    for words in (("autograde", "notebooks"), ("export",)):
        done = run(*words)
        assert done.returncode == 0, done.stderr
    scores = {
        row["student_id"]: (float(row["score"]), float(row["max_score"]))
        for row in csv.DictReader(open(folder / "grades.csv"))
    }
    most = sum(points(*check) for source in BUILT.values() for check in closing_checks(source))
    of_first = sum(points(*check) for check in closing_checks(BUILT["00_start"]))
    assert scores == {"alice": (of_first + 3.5, most), "bob": (0, most)}


def test_validate_says_whether_something_is_left_to_do(course):
    _, run = course
    assert "VALIDATION FAILED ON 1 CELL" in run("validate", "autograded/bob/ours/07_own.ipynb").stdout
    assert "Success" in run("validate", "autograded/alice/ours/00_start.ipynb").stdout
