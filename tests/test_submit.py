"""``python -m handson submit``: what students hand in is complete, without results, the same each time, and never over
an earlier one."""

import hashlib
import re
import stat
import zipfile

import pytest

from grader.instructors.collect import collect
from handson import submit
from handson.submit import SubmitError

SCRIPT, JOB, NOTEBOOK = (
    "exercises/01_single_gpu/pytorch/train.py",
    "exercises/01_single_gpu/run.sh",
    "notebooks/01_single_gpu.ipynb",
)
GOOD = {SCRIPT: b"x = 1\n", JOB: b"#!/bin/bash\n", NOTEBOOK: b'{"cells": []}'}
NOT_PACKED = {"exercises/01_single_gpu/results/run_1/log.py": b"1", "exercises/01_single_gpu/single_gpu.o12": b"1"}
NOT_PACKED |= {"exercises/__pycache__/x.py": b"1", "notebooks/.ipynb_checkpoints/01.ipynb": b"1"}
NOT_PACKED |= {"datasets/make.py": b"1", "handson/x.py": b"1", "exercises/.hidden.py": b"1"}


@pytest.fixture
def course(tmp_path):
    write(tmp_path / "course", GOOD | NOT_PACKED)
    return tmp_path / "course"


@pytest.fixture
def drop(tmp_path, monkeypatch):
    """A drop folder as docs/grading.md makes it, and a site that names it."""
    folder = tmp_path / "handed in"
    folder.mkdir()
    folder.chmod(0o3733)
    (tmp_path / "edu.toml").write_text(f'drop = "{folder}"\n')
    monkeypatch.setenv("HANDSON_SITE", str(tmp_path / "edu.toml"))
    return folder


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def submitted(course, **options):
    lines = []
    return submit.submit("jane", course, say=lines.append, **options), "\n".join(lines)


def contents(path):
    with zipfile.ZipFile(path) as pack:
        return {name: pack.read(name) for name in pack.namelist()}


def test_exercises_and_notebooks_are_packed_and_nothing_else(course):
    path, _ = submitted(course)
    assert path == course / "jane.zip" and contents(path) == GOOD


def test_the_receipt_has_the_time_and_the_digest_and_stays_beside_the_zip(course):
    path, said = submitted(course)
    assert (course / "jane.receipt.txt").read_text().rstrip() in said
    assert f"SHA256: {hashlib.sha256(path.read_bytes()).hexdigest()}" in said
    assert re.search(r"Time:   20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", said)
    assert "3 files (2 in exercises/, 1 in notebooks/)" in said and "Not handed in yet: upload jane.zip" in said
    assert f"\nFolder: {course}\n" in said, "who types it elsewhere sees whose files these are"


def test_the_same_work_gives_the_same_zip_and_other_work_replaces_it(course):
    first = submitted(course)[0].read_bytes()
    assert submitted(course)[0].read_bytes() == first
    (course / SCRIPT).write_bytes(b"x = 2\n")
    assert submitted(course)[0].read_bytes() != first
    assert sorted(path.name for path in course.iterdir() if path.is_file()) == ["jane.receipt.txt", "jane.zip"]


@pytest.mark.parametrize(
    "name, content, sentence, packed",
    [
        (SCRIPT, b" \n", "is empty, so it is left out.", False),
        (NOTEBOOK, b"{", "is not a notebook: it is packed, but cannot be graded.", True),
        (NOTEBOOK, b"[" * 100_000, "is not a notebook: it is packed, but cannot be graded.", True),
        (NOTEBOOK, b"[]", "is not a notebook: it is packed, but cannot be graded.", True),
        (SCRIPT, b"\xff", "is not text in UTF-8: it is packed, but cannot be graded.", True),
        (SCRIPT, b"#" * 1_000_001, "is larger than 1 MB, so it is left out.", False),
    ],
    ids=["empty", "half a notebook", "a deep notebook", "no notebook", "not UTF-8", "too large"],
)
def test_what_is_empty_or_unreadable_is_named(course, name, content, sentence, packed):
    (course / name).write_bytes(content)
    path, said = submitted(course)
    assert f"{name} {sentence}" in said and (name in contents(path)) == packed


def test_links_stay_within_what_they_name(course):
    (course / SCRIPT).unlink()
    (course / SCRIPT).symlink_to("/etc/hostname")
    (course / "exercises/elsewhere").symlink_to("/etc")
    path, said = submitted(course)
    assert set(contents(path)) == {JOB, NOTEBOOK} and f"{SCRIPT} is a link, so it is left out" in said


def test_nothing_to_hand_in_is_said(tmp_path):
    with pytest.raises(SubmitError, match="has no exercises and no notebooks"):
        submitted(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_zip_of_another_origin_is_never_replaced(course):
    (course / "jane.zip").write_bytes(b"mine")
    with pytest.raises(SubmitError, match="jane.zip already exists, and was not created by this command"):
        submitted(course)
    assert (course / "jane.zip").read_bytes() == b"mine"


def test_the_drop_folder_gets_each_submission_under_a_name_of_its_own(course, drop):
    first, said = submitted(course)
    (course / SCRIPT).write_bytes(b"x = 2\n")
    second, _ = submitted(course)
    there = sorted(drop.iterdir())
    assert len(there) == 2 and all(re.fullmatch(r"jane\.\d{8}T\d{6}Z\.[0-9a-f]{12}\.zip", path.name) for path in there)
    assert f"Handed in: {drop}/jane." in said and second.read_bytes() in [path.read_bytes() for path in there]
    assert [stat.S_IMODE(path.stat().st_mode) for path in there] == [0o640] * 2


def test_what_lies_in_the_drop_folder_is_collected_with_its_time(course, drop, tmp_path):
    submitted(course)
    [one] = collect(drop, tmp_path / "work", list(GOOD))
    assert (one.student, one.refused, one.problems) == ("jane", None, ())
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", one.handed_in)
    assert {name: (one.path / name).read_bytes() for name in GOOD} == GOOD


def test_a_file_that_is_much_younger_than_its_name_is_reported(course, drop, tmp_path):
    submitted(course)
    [path] = drop.iterdir()
    path.rename(drop / path.name.replace(path.name.split(".")[1], "20200101T000000Z"))
    said = []
    [one] = collect(drop, tmp_path / "work", list(GOOD), said.append)
    assert one.handed_in.startswith("2020")
    assert said[0].startswith("Written over an hour after the time in the name: jane.20200101T000000Z.")


def test_an_earlier_submission_is_never_replaced(course, drop, monkeypatch):
    monkeypatch.setattr(submit.time, "gmtime", lambda: (2026, 11, 20, 17, 0, 0, 4, 324, 0))
    submitted(course)
    [path] = drop.iterdir()
    before = path.stat()
    submitted(course)
    assert [one.stat().st_ino for one in drop.iterdir()] == [before.st_ino]


def test_a_drop_folder_that_takes_nothing_is_said_and_the_work_is_kept(course, drop):
    drop.rmdir()
    with pytest.raises(
        SubmitError,
        match=r"did not accept the file \(No such file or directory\), so your work is in .*jane.zip: try again",
    ):
        submitted(course)
    assert contents(course / "jane.zip") == GOOD and "Not handed in yet" in (course / "jane.receipt.txt").read_text()


def test_a_drop_folder_in_which_everybody_could_read_gets_nothing(course, drop):
    drop.chmod(0o777)
    with pytest.raises(SubmitError, match="everybody could read your work"):
        submitted(course)
    assert list(drop.iterdir()) == []


def test_a_full_disk_leaves_no_half_written_file(course, drop, monkeypatch):
    monkeypatch.setattr(
        submit.os, "fsync", lambda number: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(SubmitError, match="No space left on device"):
        submitted(course)
    assert list(drop.iterdir()) == [] and not list(course.glob("*.part"))


def test_checks_run_if_asked_and_hold_nothing_back(course, monkeypatch):
    asked = []
    monkeypatch.setattr(
        submit.subprocess,
        "run",
        lambda command, cwd: asked.append((command[1:], cwd)) or type("Done", (), {"returncode": 1}),
    )
    path, said = submitted(course, checked=True)
    assert asked == [(["-m", "grader", "check", "single_gpu"], course)]
    assert "Not complete: single_gpu. The work is packed anyway." in said
    assert path.exists()
