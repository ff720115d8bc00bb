"""The grader for Gradescope: ``python -m grader gradescope autograder.zip`` writes the autograder to upload, and `run`
grades one submission in Gradescope's container.

From Gradescope's documentation ("Autograder Specifications", "Submission Metadata"): the zip has setup.sh and
run_autograder at its root, and is unpacked into /autograder/source. run_autograder starts in /autograder, which has
submission/ and submission_metadata.json, and writes results/results.json.
"""

import json
import os
import shutil
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from grader import sandbox
from grader.instructors.bundle import FOR_TESTS
from grader.instructors.collect import file_name
from grader.instructors.grade.grading import grade
from handson.errors import OneSentence
from handson.files import COURSE, add_to_zip, written_aside

ROOMS = ("datasets", "exercises", "grader", "handson", "jobs", "notebooks", "solutions")
FILES = ("LICENSE", "build-constraints.txt", "course.toml", "pyproject.toml", "setup_environment.sh")
LEFT_OUT = {"results", "__pycache__", ".ipynb_checkpoints", ".released"}
# the suffixes of the course's own files; the only data set is digits
KINDS = {".py", ".sh", ".toml", ".json", ".ipynb", ".html", ".css", ".js", ".md", ".npz", ""}
LARGEST = 5_000_000  # bytes of one file
SETUP = """#!/usr/bin/env bash
# Gradescope runs this once, when the autograder is built, as root on Ubuntu. The course needs Python 3.11 or newer: choose Ubuntu 24.04.
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y make python3 python3-venv
bash /autograder/source/course/setup_environment.sh
"""
RUN = """#!/usr/bin/env bash
# Gradescope runs this for each submission, in /autograder.
here=$PWD
cd "$here/source/course" && exec .venv/bin/python -m grader.instructors.gradescope "$here"{options}
"""
NOT_CONFINED = (
    "The grader can't confine code on this machine, so nothing was graded: your instructor has to look at it."
)


class GradescopeError(OneSentence, OSError):
    """The reason why there is no autograder."""


def pack(path, trusted=False, root=COURSE, say=print):
    """Write the autograder, with the course at `root`, as a zip. trusted: run code without a sandbox if none is
    possible. Raises GradescopeError."""
    if path.suffix != ".zip":
        raise GradescopeError(f"the autograder {path} would be a zip archive: give it a name that ends in .zip")
    scripts = {"setup.sh": SETUP, "run_autograder": RUN.format(options=" --trusted" if trusted else "")}
    files = {name: (text.encode(), 0o755) for name, text in scripts.items()}
    files |= {
        f"course/{file}": ((root / file).read_bytes(), (root / file).stat().st_mode & 0o777)
        for file in _of_course(root)
    }
    files["course/requirements.txt"] = (root / "requirements.txt").read_text().partition(FOR_TESTS)[0].encode(), 0o644
    try:
        with written_aside(path) as archive, zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, (data, mode) in sorted(files.items()):
                add_to_zip(packed, name, data, mode)
    except OSError as error:
        raise GradescopeError(f"the autograder {path} can't be written ({error.strerror}): name another file") from None
    say(
        f"{path}: upload it as the assignment's autograder. It contains the solutions and hidden cases: keep it private."
    )


def _of_course(root):
    yield from (Path(name) for name in FILES if (root / name).is_file())
    for room in ROOMS:
        for path in (root / room).rglob("*"):
            inside = path.relative_to(root)
            if (
                path.is_file()
                and not LEFT_OUT & set(inside.parts)
                and path.suffix in KINDS
                and path.stat().st_size <= LARGEST
            ):
                yield inside


def run(root, trusted=False, say=print):
    """Grade the submission in root/submission, and write root/results/results.json. If nothing could be graded, the
    file has no score, so Gradescope reports a failure of the autograder instead of 0 points."""
    trusted = trusted and not sandbox.strong()
    try:
        results = _graded(root, trusted, say) if trusted or sandbox.strong() else {"tests": [], "output": NOT_CONFINED}
    except OneSentence as error:
        say(f"not graded: {error}")
        results = {
            "tests": [],
            "output": "The grader failed here, and no points are lost: your instructor has to look at it.",
        }
    with written_aside(root / "results/results.json") as file:
        file.write(json.dumps(results).encode())


def _graded(root, trusted, say):
    metadata = _metadata(root / "submission_metadata.json")
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        student = file_name(metadata.get("name") or "student")
        handed_in = metadata.get("handed_in", datetime.now(UTC))
        shutil.copytree(
            root / "submission", folder / f"class/{student}.{handed_in:%Y%m%dT%H%M%SZ}.{'0' * 12}", symlinks=True
        )
        grade(folder / "class", folder / "out", engines=min(2, os.cpu_count() or 1), trusted=trusted, say=say)
        # course.toml may put the student into a group, whose members all have results
        own = folder / f"out/results/{student}.json"
        results = json.loads((own if own.exists() else next(own.parent.glob("*.json"))).read_text())
    if not results["tests"]:  # refused: the student reads the reason, and can submit again
        results["score"] = 0.0
    return results


def _metadata(path):
    """Return {"name": the first student's name, "handed_in": a datetime in UTC}, if Gradescope's
    submission_metadata.json has them."""
    try:
        data = json.loads(path.read_text())
        found = {"handed_in": datetime.fromisoformat(data["created_at"]).astimezone(UTC)}
        return found | {"name": str(data["users"][0]["name"])}
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return {}


if __name__ == "__main__":
    run(Path(sys.argv[1]), "--trusted" in sys.argv[2:])
