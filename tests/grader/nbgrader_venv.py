"""nbgrader in a virtual environment of its own, made once in the user's cache folder: for its tests, and for
benchmarks."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

NBGRADER = "nbgrader==0.9.6"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "handson-tests"


def commands():
    """The folder with nbgrader's commands."""
    home = CACHE / f"{NBGRADER}-{sys.version_info.major}.{sys.version_info.minor}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, timeout=120)
            subprocess.run(
                [home / "bin/pip", "install", "-q", "--disable-pip-version-check", NBGRADER], check=True, timeout=600
            )
            (home / "complete").touch()
    return home / "bin"


def environment(bin, folder):
    """Variables with which nbgrader, whose commands are in `bin`, runs notebooks in our Python. Its kernel goes below
    `folder`."""
    kernel = folder / "jupyter/kernels/python3/kernel.json"
    kernel.parent.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    path = f"{bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "JUPYTER_PATH": str(folder / "jupyter"),
        "PATH": path,
    }


# The command nbgrader, again and again: for each line of words, a process forked from this one, which has imported it
# (3 s of CPU), is the command.
COMMAND = """
import json, os, sys
from nbgrader.apps.nbgraderapp import main
place = sys.argv[1]
for line in sys.stdin:
    sys.argv = ["nbgrader", *json.loads(line)]
    if (pid := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{place}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.exit(main())
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@contextmanager
def running(bin, folder, environment):
    """In a `with`: a function that runs nbgrader, whose commands are in `bin`, with some words in `folder`. It returns
    a CompletedProcess."""
    with tempfile.TemporaryDirectory() as place:
        command = [bin / "python", "-P", "-c", COMMAND, place]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipes) as process:

            def run(*words):
                print(json.dumps(words), file=process.stdin, flush=True)
                status = int(process.stdout.readline())
                return subprocess.CompletedProcess(
                    words, status, Path(place, "stdout").read_text(), Path(place, "stderr").read_text()
                )

            try:
                yield run
            finally:
                os.killpg(process.pid, signal.SIGKILL)  # also a command that hangs
