"""Which sentence stands for an error."""

import os
import signal
import subprocess
import sys

import pytest

from handson import linux
from handson.errors import DiskFull, Stopped, in_a_sentence
from handson.training import uncaught


def cleaning_up_fails():
    try:
        raise KeyboardInterrupt
    finally:
        os.close(-1)


def the_disk_is_full():
    try:
        raise KeyboardInterrupt
    finally:
        raise DiskFull


def an_error_was_handled_before():
    try:
        os.close(-1)
    except OSError:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "fails, expected",
    [(cleaning_up_fails, Stopped), (an_error_was_handled_before, Stopped), (the_disk_is_full, DiskFull)],
)
def test_what_ctrl_c_interrupts_is_told_as_ctrl_c_unless_it_says_more_itself(fails, expected):
    with pytest.raises(BaseException) as raised:
        fails()
    assert type(in_a_sentence(raised.value)) is expected


GOES_ON = """
import os, signal, time
from handson.errors import run

class Left:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

def app(prog_name):
    left = Left()
    del left
    time.sleep(60)

run(app, "handson")
"""


def test_a_signal_ends_a_command_where_python_ignores_exceptions_too():
    done = subprocess.run([sys.executable, "-c", GOES_ON], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


@pytest.mark.parametrize("name", ["random.py", "token.py", "copy.py"])
@pytest.mark.parametrize("package", ["handson", "grader"])
def test_a_students_file_that_is_called_like_a_module_of_python_keeps_no_command_from_starting(tmp_path, name, package):
    (tmp_path / name).write_text("raise SystemExit('a file of the student ran')\n")
    done = subprocess.run(
        [sys.executable, "-m", package, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "Usage" in done.stdout, done.stderr


@pytest.mark.parametrize("words", [["handson", "compare", "x"], ["handson", "submit"], ["grader", "check", "start"]])
def test_a_working_directory_that_is_gone_is_one_sentence(tmp_path, words):
    (tmp_path / "gone").mkdir()
    script = f"cd gone && rmdir ../gone && exec {sys.executable} -m {' '.join(words)}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.endswith("no longer exists: cd into one that does\n")
    assert done.stderr.count("\n") == 1


def test_a_terminal_that_is_not_utf_8_shows_what_it_can(tmp_path):
    words = "import sys; sys.argv = ['x']; from handson.errors import run; run(lambda prog_name: print('a – b'), 'x')"
    done = subprocess.run(
        [sys.executable, "-c", words], env=os.environ | {"PYTHONIOENCODING": "latin-1"}, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, b"a ? b\n")


def test_a_user_whom_passwd_does_not_know_has_a_name(monkeypatch):
    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(linux.pwd, "getpwuid", unknown)
    monkeypatch.setenv("USER", "jane")
    monkeypatch.setenv("HOME", "/home/jane")
    assert linux.user()[:2] == ("jane", "/home/jane")
    for name in ("USER", "LOGNAME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert linux.user()[:2] == (str(os.geteuid()), "/")


@pytest.mark.parametrize(("error", "again"), [(TypeError("a mistake"), False), (RuntimeError("a peer"), True)])
def test_a_rank_starts_again_only_after_what_another_rank_may_have_caused(monkeypatch, capsys, error, again):
    stopped = []
    monkeypatch.setattr(uncaught, "no_restart", lambda: stopped.append(True))
    monkeypatch.setattr(uncaught, "leave", lambda status: None)
    uncaught._end_rank(error)
    assert bool(stopped) != again and "failed with" in capsys.readouterr().err
