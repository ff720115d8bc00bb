"""What students receive: complete, the same each time, fit for their site, and without anything that solves the
tasks."""

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from grader.exercises import solved
from grader.instructors.bundle import TOP, BundleError, bundle
from grader.instructors.grade import grading
from grader.instructors.release import build

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def unpacked(archive, tmp_path):
    subprocess.run([sys.executable, "-m", "zipfile", "-e", archive, tmp_path], check=True)
    folder = tmp_path / TOP
    for entry in zipfile.ZipFile(archive).infolist():  # as unzip does, and zipfile doesn't
        (tmp_path / entry.filename).chmod(entry.external_attr >> 16 & 0o777)
    return folder


def contents(archive):
    with zipfile.ZipFile(archive) as pack:
        return {name.removeprefix(f"{TOP}/"): pack.read(name) for name in pack.namelist()}


def environment(folder):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {
        "PYTHONPATH": str(folder),
        "PATH": path,
        "HANDSON_PBS_HOME": str(folder / "pbs"),
        "COLUMNS": "120",
    }


def test_it_holds_no_solution_no_hidden_check_and_nothing_that_leads_to_them(archive):
    found = contents(archive)
    rooms = {Path(name).parts[0] for name in found} | {"/".join(Path(name).parts[:2]) for name in found}
    folders = {folder for name in found for folder in Path(name).parts[:-1]}
    assert not folders & {"solutions", "answers", "instructors", "tests"}
    assert not [name for name in found if name == "docs/grading.md" or Path(name).name.startswith("hidden_")]
    assert {
        "exercises",
        "notebooks",
        "handson",
        "jobs",
        "datasets",
        "grader/units",
        "grader/exercises.json",
        "README.md",
        "AGENTS.md",
        "Makefile",
    } <= rooms
    for name, data in found.items():
        assert name in ("grader/gaps.py", "handson/cluster/job_scripts.py") or b"### BEGIN SOLUTION" not in data, name


@pytest.mark.thorough
def test_the_same_course_gives_the_same_archive(archive, built, tmp_path):
    bundle(built, tmp_path / "again.zip", "local")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


@pytest.mark.thorough
def test_everything_the_checks_import_is_there(unpacked):
    for path in sorted((unpacked / "grader").rglob("*.py")):
        for statement in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(statement, ast.ImportFrom)
                and (statement.module or "").startswith("grader")
                and statement.col_offset == 0
            ):
                place = unpacked / statement.module.replace(".", "/")
                assert place.is_dir() or place.with_suffix(".py").exists(), f"{path} imports {statement.module}"


@pytest.mark.thorough
def test_a_student_checks_work_in_it(unpacked):
    command = [sys.executable, "-m", "grader", "check", "multi_gpu", "--track", "pytorch"]
    for file in (
        "exercises/02_multi_gpu/pytorch/train_cifar_multi_gpu.py",
        "exercises/02_multi_gpu/run_multi_gpu_training.sh",
    ):
        (unpacked / file).write_text(solved(file))
    done = subprocess.run(
        command, cwd=unpacked / "exercises", env=environment(unpacked), capture_output=True, text=True, timeout=120
    )
    assert done.stderr == "" and "✗" not in done.stdout, done.stdout
    (unpacked / file).write_text(solved(file).replace("mpiprocs=2", "mpiprocs=1"))
    done = subprocess.run(command, cwd=unpacked, env=environment(unpacked), capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "2 are needed, one for each GPU" in " ".join(done.stdout.split())


@pytest.mark.thorough
def test_a_student_submits_a_job_in_it(unpacked):
    folder = unpacked / "exercises/00_start"
    command = ["qsub", "-j", "oe", "-W", "block=true", "first_job.sh"]
    done = subprocess.run(command, cwd=folder, env=environment(unpacked), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "This is job 0." in (folder / "first_job.o0").read_text()


@pytest.mark.thorough
def test_what_a_student_submits_from_it_is_graded(unpacked, tmp_path, borrowing):
    file = "exercises/02_multi_gpu/run_multi_gpu_training.sh"
    (unpacked / file).write_text(solved(file))
    command = [sys.executable, "-m", "handson", "submit", "--name", "jane"]
    done = subprocess.run(
        command,
        cwd=unpacked / "exercises",
        env=environment(unpacked),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "SHA256: " in done.stdout and done.stderr == ""
    (tmp_path / "class").mkdir()
    (unpacked / "jane.zip").rename(tmp_path / "class/jane.zip")
    grading.grade(tmp_path / "class", tmp_path / "out", engines=1, units=["multi_gpu"], say=lambda line: None)
    rows = [
        line
        for line in (tmp_path / "out/grades.csv").read_text().splitlines()
        if "pytorch" not in line and "chainer" not in line
    ]
    passed = [row for row in rows if row.startswith("jane,multi_gpu,") and ",passed," in row]
    assert passed and "Missing" not in (tmp_path / "out/feedback/jane.html").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize(("package", "theirs", "ours"), [("handson", "submit", "tour"), ("grader", "check", "release")])
def test_the_instructors_commands_are_not_in_it(unpacked, package, theirs, ours):
    command = [sys.executable, "-m", package, "--help"]
    shown = subprocess.run(
        command, cwd=unpacked, env=environment(unpacked), capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert f" {theirs} " in shown and f" {ours} " not in shown


@pytest.mark.thorough
def test_files_that_the_data_sets_text_names_are_there(unpacked):
    named = set(re.findall(r"\bdatasets/\w+\.\w+", (unpacked / "datasets/README.md").read_text()))
    assert "datasets/make_digits.py" in named and not [name for name in named if not (unpacked / name).exists()]


@pytest.mark.thorough
def test_make_and_the_environment_are_those_of_the_course(unpacked):
    assert os.access(unpacked / "setup_environment.sh", os.X_OK)
    assert "make lab" in subprocess.run(["make", "-C", unpacked], capture_output=True, text=True, check=True).stdout
    assert all(
        (unpacked / name).read_text() == (ROOT / ".containerignore").read_text()
        for name in (".containerignore", ".dockerignore")
    )
    required = (unpacked / "requirements.txt").read_text()
    assert (
        (ROOT / "requirements.txt").read_text().startswith(required)
        and "torch==" in required
        and "pytest" not in required
    )
    for name in ("build-constraints.txt", "pyproject.toml", "environment.yml"):
        assert (unpacked / name).read_bytes() == (ROOT / name).read_bytes()


@pytest.mark.thorough
def test_another_sites_students_get_its_queue_and_modules(tmp_path):
    bundle(build(ROOT / "solutions", "reedbush"), tmp_path / "course.zip", "reedbush")
    found = contents(tmp_path / "course.zip")
    assert found["jobs/sites/CHOSEN"] == b"reedbush\n"
    assert (
        b"#PBS -q h-lecture\n" in found["exercises/00_start/first_job.sh"]
        and b"#PBS -q h-lecture\n" in found["jobs/pbs/run_doctor.sh"]
    )
    training = found["exercises/02_multi_gpu/run_multi_gpu_training.sh"]
    assert b"module load cuda\n" in training and b"#PBS -q (queue)\n" in training


@pytest.mark.thorough
def test_a_bundle_that_cannot_be_written_is_refused_in_a_sentence(built, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="cannot be written"):
        bundle(built, tmp_path / "file/course.zip", "local")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("package", sorted((ROOT / "grader").rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_each_package_of_the_grader_says_where_it_runs_and_whether_students_receive_it(package, archive):
    first = ast.get_docstring(ast.parse(package.read_text())).splitlines()[0]
    said = re.fullmatch(r"Runs .*\. Students receive it: (yes|no)\b.*\.", first)
    with zipfile.ZipFile(archive) as pack:
        assert (f"handson-course/{package.relative_to(ROOT)}" in pack.namelist()) == (said[1] == "yes")
