"""docs/adding_a_unit.md, done exactly as it says in a copy of the course: three new folders are enough for a graded
unit."""

import csv
import os
import re
import shutil
from pathlib import Path

import pytest
from environments import environment_of
from waiting import run_to_end

from grader.gaps import answers, exercise, fill

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/adding_a_unit.md").read_text()
PLACE = r"`(?:solutions|grader|answers)/"  # of a file whose text follows the paragraph
FILES = dict(
    re.findall(rf"({PLACE}[\w./]+)`(?:(?!\n\n|{PLACE}).)*\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)
FILES = {name.removeprefix("`"): text for name, text in FILES.items()}
COMMANDS = re.findall(r"^    (\S.*)$", PAGE.partition("## 4.")[2], re.MULTILINE)
FOLDERS = ("solutions/50_totals/", "grader/units/totals/", "answers/totals/")
BUILT = ("exercises/50_totals/", "notebooks/50_totals.ipynb", "exercises/.released", "notebooks/.released")

pytestmark = pytest.mark.thorough


class Course:
    """A copy of the course, in which commands run."""

    def __init__(self, folder):
        self.folder = folder
        left_out = shutil.ignore_patterns(
            ".git", ".venv", "results", "__pycache__", ".pytest_cache", "build", "*.egg-info", "*.before-*"
        )
        shutil.copytree(ROOT, folder, symlinks=True, ignore=left_out)
        self.programs = environment_of(folder, folder.with_name("venv"))
        path = f"{self.programs}:{os.environ['PATH']}"
        self.environment = os.environ | {
            "PYTHONPATH": str(folder),
            "PATH": path,
            "HANDSON_PBS_HOME": str(folder / ".pbs"),
            "COLUMNS": "150",
        }
        self.environment = {name: value for name, value in self.environment.items() if not name.startswith("PYTEST_")}

    def run(self, command, where=".", status=0):
        """What a command prints; it is one of the page, or a list of words."""
        assert isinstance(command, list) or command in COMMANDS or "grader grade" in command
        words = command.replace("python ", f"{self.programs}/python ").split() if isinstance(command, str) else command
        done = run_to_end(words, cwd=self.folder / where, env=self.environment, timeout=500)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def files(self):
        paths = (
            path
            for path in self.folder.rglob("*")
            if path.is_file() and not {"__pycache__", ".pbs", ".pytest_cache"} & set(path.parts)
        )
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}

    def hand_in(self, student, source=None, code=None):
        """A submission: the notebook and both files with their gaps filled, but for one with other `code`."""
        place = self.folder / "class" / student
        for solution in ("pytorch/add_up.py", "run_totals.sh"):
            text = FILES[f"solutions/50_totals/{solution}"]
            given = exercise(text, Path(solution).suffix)
            filled = answers(text) if student != "untouched" else {}
            (place / "exercises/50_totals" / solution).parent.mkdir(parents=True, exist_ok=True)
            (place / "exercises/50_totals" / solution).write_text(
                fill(given, filled | (code if solution == source else {}))
            )


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    made = Course(tmp_path_factory.mktemp("adding") / "course")
    before = made.files()
    for name, text in FILES.items():
        (made.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (made.folder / name).write_text(text)
        if name.endswith(".sh"):
            (made.folder / name).chmod(0o755)
    made.run("python -m grader release")
    after = made.files()
    made.changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return made


def test_the_page_has_every_file_of_the_unit():
    assert len(FILES) == 12 and all(name.startswith(FOLDERS) for name in FILES)
    assert len(COMMANDS) == 5


def test_nothing_but_the_units_own_files_changes(course):
    assert {name for name in course.changed if not name.startswith((*FOLDERS, *BUILT))} == set()
    assert {
        "exercises/50_totals/pytorch/add_up.py",
        "exercises/50_totals/run_totals.sh",
        "notebooks/50_totals.ipynb",
    } <= course.changed


def test_the_known_answers_prove_its_checks(course):
    said = course.run("python -m grader verify --unit totals")
    assert "The checks of totals are right about the solutions, the untouched exercises and 7 known answers." in said


def test_a_student_gets_nothing_for_the_exercise_and_everything_for_the_solution(course):
    check = "python -m grader check totals"
    assert "0 of" in course.run(check, status=1)
    for name in ("pytorch/add_up.py", "run_totals.sh"):
        text = FILES[f"solutions/50_totals/{name}"]
        (course.folder / "exercises/50_totals" / name).write_text(
            fill(exercise(text, Path(name).suffix), answers(text))
        )
    shown = course.run(check, status=1)  # the notebook's gap is still open
    assert "the sum, on every rank" in shown and shown.count("✗") == 0


def test_the_tests_on_all_units_hold_with_it(course):
    asked = "(totals or test_teaching or test_contents or syllabus) and not test_adding"
    files = (
        "tests/grader tests/test_contents.py tests/test_imports.py tests/test_teaching.py tests/test_jobs.py".split()
    )
    shown = course.run(
        [
            f"{course.programs}/python",
            *"-m pytest -q -p no:cacheprovider -m".split(),
            "not thorough",
            "-k",
            asked,
            *files,
        ]
    )
    assert "[100%]" in shown


def test_its_job_runs(course):
    course.run("qsub -W block=true -j oe run_totals.sh", "solutions/50_totals")
    assert "2 ranks add up to 3\n" in (course.folder / "solutions/50_totals/totals.o0").read_text()


def test_a_class_is_graded_and_a_mutant_caught(course):
    course.hand_in("right")
    course.hand_in("untouched")
    course.hand_in("mutant", "pytorch/add_up.py", {"total": "total = torch.tensor(float(number))"})
    course.run("python -m grader grade class --out graded --unit totals")
    with open(course.folder / "graded/grades.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["check"].endswith("the sum, on every rank")]
    assert {row["student"]: (float(row["points"]), row["status"]) for row in rows} == {
        "right": (2, "passed"),
        "untouched": (0, "not attempted"),
        "mutant": (0, "failed"),
    }
    assert "nothing adds them up" in next(row["message"] for row in rows if row["student"] == "mutant")
