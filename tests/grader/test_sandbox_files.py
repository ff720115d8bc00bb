"""Which files a student's code sees."""

import os
import shutil
import sys

import pytest
import sandbox_runs
from sandbox_runs import CALLERS, run

ROOM = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture
def secret():
    path = sandbox_runs.outside_secret()
    yield path
    shutil.rmtree(path.parent)


def read(path):
    with open(path, "rb") as file:
        return len(file.read(100))


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/hostname", f"{ROOM}/README.md", f"{ROOM}/solutions", "/root/.bashrc", "/home", "/var/lib"])
def test_files_of_the_machine_are_not_there(path, caller):
    assert run(read, path, caller=caller) in ("FileNotFoundError", "PermissionError")


@pytest.mark.parametrize("caller", CALLERS)
def test_what_is_to_be_read_can_be_read(secret, caller):
    assert run(read, str(secret), caller=caller, readable=[secret.parent]) == 2
    assert run(read, str(secret), caller=caller) == "FileNotFoundError"
