"""The autograder for Gradescope: its zip, and what it makes of a submission in folders as Gradescope lays them out.

After "Autograder Specifications" and "Submission Metadata" in Gradescope's documentation
(gradescope/autograder_samples, docs).
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from classes import gradescopes
from waiting import run_to_end

from grader.exercises import solved
from grader.instructors import gradescope
from grader.instructors.gradescope import GradescopeError, pack

JOB = "exercises/02_multi_gpu/run_multi_gpu_training.sh"
METADATA = {
    "created_at": "2026-11-20T09:30:00.365935-08:00",
    "users": [{"name": "Jane Doe", "id": 1, "email": "jane@example.org"}],
}


@pytest.fixture(scope="module")
def autograder(tmp_path_factory):
    """The zip, and /autograder as Gradescope makes it of the zip, with the environment that setup.sh would make."""
    folder = tmp_path_factory.mktemp("gradescope")
    pack(folder / "autograder.zip", say=lambda line: None)
    place = folder / "autograder"
    with zipfile.ZipFile(folder / "autograder.zip") as packed:
        packed.extractall(place / "source")
        for entry in packed.infolist():
            (place / "source" / entry.filename).chmod(entry.external_attr >> 16 & 0o777)
    (place / "source/run_autograder").rename(place / "run_autograder")
    (place / "source/course/.venv").symlink_to(sys.prefix)
    (place / "submission").mkdir()
    (place / "results").mkdir()
    (place / "submission_metadata.json").write_text(json.dumps(METADATA))
    return place


@pytest.mark.thorough
def test_the_zip_has_what_gradescope_looks_for_at_its_root(autograder):
    assert os.access(autograder / "run_autograder", os.X_OK)
    assert (autograder / "source/setup.sh").read_text().startswith("#!/usr/bin/env bash\n")
    for script in (autograder / "run_autograder", autograder / "source/setup.sh"):
        subprocess.run(["bash", "-n", script], check=True)
    course = autograder / "source/course"
    assert os.access(course / "setup_environment.sh", os.X_OK)
    assert (course / "solutions/02_multi_gpu").is_dir()
    assert (course / "datasets/digits.npz").is_file()
    assert not (course / "tests").exists() and "pytest" not in (course / "requirements.txt").read_text()
    assert not [path for path in course.rglob("*") if path.name in ("results", "__pycache__", ".git")]
    assert (autograder.parent / "autograder.zip").stat().st_size < 5_000_000


@pytest.mark.thorough
def test_a_submission_is_graded_in_gradescopes_folders(autograder):
    path = autograder / "submission" / JOB
    path.parent.mkdir(parents=True)
    path.write_text(solved(JOB))
    # as if setup.sh had installed the course
    environment = os.environ | {"PYTHONPATH": str(autograder / "source/course")}
    done = run_to_end([autograder / "run_autograder"], cwd=autograder, env=environment, timeout=500)
    assert done.returncode == 0, done.stderr
    results = gradescopes((autograder / "results/results.json").read_text())
    passed = [test for test in results["tests"] if test.get("status") == "passed"]
    assert passed
    assert (
        results["score"] == sum(test["score"] for test in results["tests"]) == sum(test["max_score"] for test in passed)
    )


def graded(folder, monkeypatch, files, strong=True, metadata=None):
    """results.json of `run`, with a grading in place of the real one that reports what it was given."""
    for name, content in files.items():
        (folder / "submission" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "submission" / name).write_text(content)
    if metadata is not None:
        (folder / "submission_metadata.json").write_text(metadata)
    given = {}

    def grade(submissions, out, engines, trusted, say):
        given.update(names=[path.name for path in submissions.iterdir()], trusted=trusted)
        (out / "results").mkdir(parents=True)
        (out / "results/x.json").write_text(
            json.dumps({"output": "x.zip holds none of the files asked for", "tests": []})
        )

    monkeypatch.setattr(gradescope, "grade", grade)
    monkeypatch.setattr(gradescope.sandbox, "strong", lambda: strong)
    gradescope.run(folder, trusted=folder.name == "trusted", say=lambda line: None)
    return gradescopes((folder / "results/results.json").read_text()), given


def test_name_and_time_are_those_of_the_metadata(tmp_path, monkeypatch):
    _, given = graded(tmp_path, monkeypatch, {"x.py": ""}, metadata=json.dumps(METADATA))
    assert given["names"] == ["Jane Doe.20261120T173000Z.000000000000"]


@pytest.mark.parametrize(
    "metadata", [None, "{", "[]", '{"created_at": 1}', '{"created_at": "2026-11-20T09:30:00Z", "users": []}']
)
def test_without_metadata_it_is_graded_nevertheless(tmp_path, monkeypatch, metadata):
    _, given = graded(tmp_path, monkeypatch, {"x.py": ""}, metadata=metadata)
    assert given["names"][0].startswith("student.20")


def test_who_handed_in_nothing_that_was_asked_for_reads_why(tmp_path, monkeypatch):
    results, _ = graded(tmp_path, monkeypatch, {"x.py": ""})
    assert results["score"] == 0.0 and "none of the files asked for" in results["output"]


def test_without_a_sandbox_nothing_is_graded_unless_the_instructor_trusts_all_code(tmp_path, monkeypatch):
    for name in ("careful", "trusted"):
        (tmp_path / name).mkdir()
        results, given = graded(tmp_path / name, monkeypatch, {"x.py": ""}, strong=False)
        assert ("score" in results, given.get("trusted")) == ((True, True) if name == "trusted" else (False, None))


def test_an_autograder_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(GradescopeError, match="give it a name that ends in .zip"):
        pack(tmp_path / "autograder.tar")
    (tmp_path / "file").touch()
    with pytest.raises(GradescopeError, match="can't be written"):
        pack(Path(tmp_path / "file/autograder.zip"))
