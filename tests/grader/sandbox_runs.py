"""Runs a function in a sandbox, as its rank: as root, and as an ordinary user, whom root becomes for that."""

import json
import os
import select
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

from grader import sandbox
from grader.sandbox import doctor, kernel

ORDINARY = 54321  # a user without an account
WAIT = 30  # seconds
CALLERS = ["root", "user"] if os.geteuid() == 0 else ["user"]


@dataclass
class Run:
    answer: object  # what the function returned, or the name of the exception it raised
    status: int | None  # of the rank, as subprocess has it; None when it was killed with the sandbox


def become(caller):
    """Be an ordinary user, if that is asked for."""
    if caller == "user" and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(ORDINARY, ORDINARY, ORDINARY)
        os.setresuid(ORDINARY, ORDINARY, ORDINARY)
        kernel.prctl(kernel.DUMPABLE, 1)
    doctor.layers.cache_clear()


def run(function, *arguments, caller="user", readable=(), workplace=None, keep=(), ranks=1, **limits):
    """Run ``function(*arguments)`` in one rank, or ``function(rank, *arguments)`` in several. Nothing of it is left when this returns."""
    with tempfile.TemporaryDirectory(prefix="sandbox-") as folder:
        os.chmod(folder, 0o755)
        confinement = sandbox.Confinement([*sandbox.interpreter_paths(), *readable], str(workplace or folder), sandbox.Limits(**limits))
        reading, writing = os.pipe()
        outer = os.fork()
        if outer == 0:
            try:
                os.close(reading)
                become(caller)
                _sandbox(confinement, function, arguments, ranks, writing, keep)
            except BaseException as error:
                os.write(writing, json.dumps(f"no sandbox: {error!r}").encode() + b"\n")
            finally:
                os._exit(70)
        os.close(writing)
        lines = _until_end(reading, outer)
    answers = [json.loads(line) for line in lines]
    return answers[0] if ranks == 1 and answers else answers


def _sandbox(confinement, function, arguments, ranks, writing, keep):
    """The first process of the sandbox: starts the ranks, waits for them."""
    sandbox.enter(confinement)
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            try:
                sandbox.limit_rank(confinement.limits)
                sandbox.clean_environment(confinement.workplace)
                sandbox.close_other_files([writing, *keep])
                answer = function(*([rank] if ranks > 1 else []), *arguments)
            except BaseException as error:
                answer = type(error).__name__
            os.write(writing, json.dumps(answer).encode() + b"\n")
            os._exit(0)
        children.append(child)
    for child in children:
        _, status = os.waitpid(child, 0)
        if status:
            os.write(writing, json.dumps(f"ended: {os.waitstatus_to_exitcode(status)}").encode() + b"\n")
    os._exit(0)


def _until_end(reading, outer):
    """The lines that came. The pipe is closed only by the end of every process in the sandbox."""
    ended = os.pidfd_open(outer)
    lines = b""
    try:
        while select.select([reading], [], [], WAIT)[0]:
            if not (part := os.read(reading, 1 << 16)):
                break
            lines += part
        else:
            os.kill(outer, signal.SIGKILL)
            lines += b'"it never ended"\n'
        os.waitpid(outer, 0)
    finally:
        os.close(ended)
        os.close(reading)
    return lines.splitlines()


def outside_secret():
    """The path of a file that everybody may read, outside of every sandbox."""
    folder = Path(tempfile.mkdtemp(prefix="secret-"))
    folder.chmod(0o755)
    (folder / "expected.json").write_text("42")
    return folder / "expected.json"
