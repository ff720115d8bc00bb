"""What ranks of MPI that were killed left behind goes at the next start of a training, and nothing that is still
used."""

import os
import subprocess
import sys
import time

import pytest

from handson import linux
from handson.training import leftovers

USER = """
import mmap, os, sys
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def rooms(tmp_path, monkeypatch):
    """The folders for shared memory and for temporary files, as after a hundred failing runs."""
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    for folder in (shared, temporary):
        folder.mkdir()
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", shared)
    monkeypatch.setattr(leftovers, "TEMPORARY", temporary)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "of the job"))
    for number in range(100):
        (shared / f"mpich_shm_{number}_0").write_bytes(bytes(4096))
        (temporary / f"hydra_hwloc_xmlfile_{number}").touch()
    (shared / "sem.other").touch()
    for path in [*shared.iterdir(), *temporary.iterdir()]:
        os.utime(path, (time.time() - 100_000,) * 2)
    monkeypatch.setattr(linux, "name", lambda process: "python")
    return shared, temporary


def test_files_of_dead_ranks_go_and_those_of_living_and_starting_ones_stay(rooms):
    shared, temporary = rooms
    os.utime(shared / "mpich_shm_1_0")
    with subprocess.Popen(
        [sys.executable, "-c", USER, shared / "mpich_shm_7_0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as rank:
        rank.stdout.readline()
        leftovers.remove()
        assert sorted(path.name for path in shared.iterdir()) == ["mpich_shm_1_0", "mpich_shm_7_0", "sem.other"]
        rank.stdin.close()
        rank.wait()
    os.utime(shared / "mpich_shm_1_0", (1000, 1000))
    leftovers.remove()
    assert [path.name for path in shared.iterdir()] == ["sem.other"] and not list(temporary.iterdir())


def test_descriptions_of_the_machine_go_if_they_are_older_than_each_mpiexec_that_runs(rooms, monkeypatch):
    monkeypatch.setattr(linux, "name", lambda process: "mpiexec.hydra" if process == os.getpid() else "python")
    new = rooms[1] / "hydra_hwloc_xmlfile_7"
    os.utime(new, (time.time() + 60, time.time() + 60))
    monkeypatch.setattr(leftovers, "YOUNG", -1000)
    leftovers.remove()
    assert list(rooms[1].iterdir()) == [new]
