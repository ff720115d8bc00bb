"""Temporary folders go with their process: at its end, or when the next one looks."""

import os
import subprocess
import sys

import pytest

from grader.temporary import remove_orphans, temporary_folder

OWNER = """
import sys
from grader.temporary import temporary_folder
with temporary_folder("ours-") as folder:
    open(f"{folder}/key", "w").close()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def room(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def owner():
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process, process.stdout.readline().strip()
        process.stdin.close()


def test_a_folder_is_for_its_user_alone_and_goes_with_the_block(room):
    with temporary_folder("ours-") as folder:
        assert os.stat(folder).st_mode & 0o777 == 0o700
    assert not list(room.iterdir())


def test_the_folder_of_a_living_process_stays_and_that_of_a_killed_one_goes(owner):
    process, folder = owner
    remove_orphans("ours-")
    assert os.path.exists(f"{folder}/key")
    process.kill()
    process.wait()
    assert os.path.exists(f"{folder}/key")
    remove_orphans("ours-")
    assert not os.path.exists(folder)


def test_nothing_else_is_removed_and_links_are_not_followed(room):
    (room / "others").mkdir()
    (room / "others/file").touch()
    (room / "ours-link").symlink_to(room / "others")
    (room / "ours-file").touch()
    remove_orphans("ours-")
    assert sorted(path.name for path in room.iterdir()) == ["others", "ours-file"] and (room / "others/file").exists()


def test_a_link_that_code_has_put_in_place_of_its_folder_goes_too(room):
    (room / "others").mkdir()
    with temporary_folder("ours-") as folder:
        os.rmdir(folder)
        os.symlink(room / "others", folder)
    assert [path.name for path in room.iterdir()] == ["others"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_stays(room):
    (room / "ours-x").mkdir()
    os.chown(room / "ours-x", 54321, 54321)
    remove_orphans("ours-")
    assert (room / "ours-x").exists()
