"""Which files a student's code sees, and how much it can write."""

import errno
import multiprocessing.heap
import os
import shutil
import sys

import pytest
import sandbox_runs
from sandbox_runs import CALLERS, error_of, run

ROOM = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MIB = 1 << 20

pytestmark = [pytest.mark.thorough, sandbox_runs.needs_strong, pytest.mark.parametrize("caller", CALLERS)]


@pytest.fixture
def secret():
    """A file outside that every user of the machine may read."""
    path = sandbox_runs.open_folder("secret-") / "expected.json"
    path.write_text("42")
    yield path
    shutil.rmtree(path.parent)


@pytest.fixture
def workplace():
    path = sandbox_runs.open_folder("workplace-")
    yield path
    shutil.rmtree(path)


def read(path):
    with open(path, "rb") as file:
        return len(file.read(100))


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/etc/hostname", f"{ROOM}/README.md", os.path.expanduser("~/.bashrc"), "/proc/1/environ"]
)
def test_files_of_the_machine_are_not_there(path, caller):
    assert run(read, path, caller=caller) in ("FileNotFoundError", "PermissionError")


@pytest.mark.parametrize(
    "path", ["/home", "/var/lib", "/sys", "/run", f"{ROOM}/solutions", f"{ROOM}/grader", os.path.expanduser("~/.ssh")]
)
def test_folders_of_the_machine_are_not_there(path, caller):
    assert run(os.listdir, path, caller=caller) in ("FileNotFoundError", "PermissionError", [])


def test_only_what_is_to_be_read_can_be_read(secret, caller):
    assert run(read, str(secret), caller=caller, readable=[secret.parent]) == 2
    assert run(read, str(secret), caller=caller) == "FileNotFoundError"


def test_secrets_of_the_course_are_hidden_even_in_what_is_shown(caller):
    seen = run(os.listdir, ROOM, caller=caller, readable=[ROOM])
    assert "handson" in seen and "solutions" in seen
    for secret in ("solutions", "tests", "grader/instructors", "grader/units/multi_gpu/instructors"):
        assert run(os.listdir, f"{ROOM}/{secret}", caller=caller, readable=[ROOM]) == "PermissionError"


def test_what_can_be_read_cannot_be_changed(secret, caller):
    secret.chmod(0o666)
    secret.parent.chmod(0o777)

    def change():
        return [
            error_of(open, secret, "w"),
            error_of(open, secret.parent / "new", "w"),
            error_of(os.unlink, secret),
            error_of(os.rename, secret, "taken"),
            error_of(os.chmod, secret, 0o777),
            error_of(os.utime, secret),
            error_of(os.truncate, secret, 0),
        ]

    refused = run(change, caller=caller, readable=[secret.parent])
    assert set(refused) <= {errno.EROFS, errno.EACCES, errno.EPERM, errno.EXDEV}
    assert secret.read_text() == "42"


def test_the_interpreter_cannot_be_changed(caller):
    assert run(open, f"{sys.prefix}/new", "w", caller=caller) in ("OSError", "PermissionError", "FileNotFoundError")
    assert run(open, "/usr/bin/new", "w", caller=caller) in ("OSError", "PermissionError")


def test_an_interpreter_behind_a_link_is_shown_under_both_names(monkeypatch, caller):
    real = sandbox_runs.open_folder("environment-")
    link = real.parent / f"{real.name}-link"
    link.symlink_to(real)
    (real / "site-packages").mkdir()
    (real / "site-packages/library").write_text("given")
    monkeypatch.setattr(sys, "path", [*sys.path, str(link / "site-packages")])
    try:
        for folder in (link, real):
            assert run(read, str(folder / "site-packages/library"), caller=caller) == 5
    finally:
        link.unlink()
        shutil.rmtree(real)


def test_files_of_the_workplace_can_be_read_and_changed_and_stay_as_they_were(workplace, caller):
    (workplace / "data").mkdir()
    (workplace / "data/in.txt").write_text("given")

    def work():
        with open("data/in.txt") as file:
            text = file.read()
        with open("data/in.txt", "w") as file:
            file.write("changed")
        with open(workplace / "out.txt", "w") as file:
            file.write("new")
        return [text, sorted(os.listdir(workplace))]

    assert run(work, caller=caller, workplace=workplace) == ["given", ["data", "out.txt"]]
    assert (workplace / "data/in.txt").read_text() == "given"


def test_a_link_in_the_workplace_leads_nowhere(workplace, secret, caller):
    (workplace / "link").symlink_to(secret)
    (workplace / "folder").symlink_to("/etc")
    assert run(read, "link", caller=caller, workplace=workplace) == "FileNotFoundError"
    assert run(read, "folder/shadow", caller=caller, workplace=workplace) == "FileNotFoundError"


def test_an_open_folder_of_the_grader_is_no_way_out(caller):
    outside = os.open("/", os.O_RDONLY)
    try:
        inherited = run(os.listdir, outside, caller=caller)
        kept = run(open_from, outside, "etc/passwd", caller=caller, keep=[outside])
    finally:
        os.close(outside)
    assert inherited == "OSError", "it is closed before"
    assert kept == "PermissionError", "Landlock does not care how a file is reached"


def open_from(folder, path):
    os.close(os.open(path, os.O_RDONLY, dir_fd=folder))


def fill(*folders):
    """Bytes that fit into all `folders` together, in files of one MiB."""
    written = 0
    for folder in folders:
        for number in range(1000):
            try:
                with open(f"{folder}/{number}", "wb", buffering=0) as file:
                    written += file.write(bytes(MIB))
            except OSError as error:
                assert error.errno == errno.ENOSPC
                break
    return written


def test_all_that_is_written_is_bounded(workplace, caller):
    assert run(fill, "/tmp", "/dev/shm", workplace, caller=caller, workplace=workplace, tmp_bytes=10 * MIB) <= 10 * MIB


def test_the_number_of_files_is_bounded(caller):
    def litter():
        for number in range(100_000):
            os.mkdir(f"/tmp/{number}")

    assert run(litter, caller=caller) == "OSError"


def test_no_file_is_larger_than_the_limit(caller):
    def write():
        with open("large", "wb") as file:
            file.truncate(3 * MIB)

    assert run(write, caller=caller, file_bytes=2 * MIB) == "OSError"
    assert run(write, caller=caller, file_bytes=4 * MIB) is None


def test_nothing_is_written_anywhere_else(caller):
    places = ["/", "/etc", "/dev", "/usr", "/proc", "/proc/self", "/.own", "/.old"]

    def write():
        return [error_of(open, f"{place}/new", "w") for place in places]

    assert 0 not in run(write, caller=caller)


def test_forked_processes_share_memory(caller):
    def share():
        processes = multiprocessing.get_context("fork")
        numbers = processes.RawArray("i", 3)
        child = processes.Process(target=numbers.__setitem__, args=(1, 7))
        child.start()
        child.join()
        return list(numbers)

    assert run(share, caller=caller) == [0, 7, 0]


def test_a_strict_umask_outside_closes_nothing_inside(caller):
    """Jobs of PBS have one."""
    assert run(read, "/dev/null", caller=caller, before=lambda: os.umask(0o077)) == 0
