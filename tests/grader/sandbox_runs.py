"""Runs a function in a sandbox, as its rank: as root, and as an ordinary user, whom root becomes for that."""

import json
import os
import select
import signal
import stat
import tempfile
from pathlib import Path

import pytest

from grader import sandbox
from grader.sandbox import kernel, layers_in_force

ORDINARY = 54321  # a user without an account
WAIT = 30  # seconds
CALLERS = ["root", "user"] if os.geteuid() == 0 else ["user"]
ENDED_BY_ITSELF = 70

needs_strong = pytest.mark.skipif(not sandbox.strong(), reason=sandbox.missing())


def become(caller):
    """Be an ordinary user, if that is asked for."""
    if caller == "user" and os.geteuid() == 0:
        for path in sandbox.interpreter_paths():
            _make_reachable(path)
        os.setgroups([])
        os.setresgid(ORDINARY, ORDINARY, ORDINARY)
        os.setresuid(ORDINARY, ORDINARY, ORDINARY)
        kernel.prctl(kernel.DUMPABLE, 1)
        layers_in_force.layers.cache_clear()


def _make_reachable(path):
    """Let everybody reach `path`, in this process alone: root's Python may lie in root's home."""
    closed = next((parent for parent in reversed(Path(path).parents) if not parent.stat().st_mode & stat.S_IXOTH), None)
    if closed:
        aside = tempfile.mkdtemp()
        kernel.unshare(kernel.NEW_MOUNTS)
        kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
        kernel.bind(path, aside)
        kernel.mount("none", closed, "tmpfs", 0, "mode=755")
        os.makedirs(path)
        kernel.bind(aside, path)
        kernel.detach(aside)
        os.rmdir(aside)


def open_folder(prefix):
    """A new folder that every user may read."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    return folder


def run(function, *arguments, ranks=1, **options):
    """What ``function(*arguments)`` returns in a sandbox, or the name of the exception that it raises, or "ended:
    STATUS".

    With several ranks: a list of what ``function(rank, *arguments)`` returns. `options` as for `start`. Nothing is left
    running.
    """
    with tempfile.TemporaryDirectory(prefix="sandbox-") as folder:
        os.chmod(folder, 0o755)
        outer, reading = start(function, *arguments, folder=folder, ranks=ranks, **options)
        try:
            answers = [json.loads(line) for line in until_end(reading).splitlines()]
        except BaseException:
            os.kill(outer, signal.SIGKILL)
            raise
        finally:
            os.waitpid(outer, 0)
    return answers[0] if ranks == 1 and answers else answers


def start(
    function,
    *arguments,
    folder,
    ranks=1,
    caller="user",
    readable=(),
    workplace=None,
    keep=(),
    before=None,
    prepared=False,
    **limits,
):
    """Start the sandbox; returns the process outside that waits for it, and a pipe that all processes inside hold open.

    before: called before the sandbox is made. prepared: as a box does it, with one fork less.
    """
    confinement = sandbox.Confinement(
        [*sandbox.interpreter_paths(), *readable], str(workplace or folder), sandbox.Limits(**limits)
    )
    reading, writing = os.pipe()
    outer = os.fork()
    if outer:
        os.close(writing)
        return outer, reading
    try:
        os.close(reading)
        become(caller)
        if before:
            before()
        if prepared:
            sandbox.prepare()
            if first := os.fork():
                os.close(writing)
                os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
        sandbox.enter(confinement)
        _be_first(confinement, function, arguments, ranks, writing, keep)
    except BaseException as error:
        tell(writing, f"no sandbox: {error!r}")
    finally:
        os._exit(ENDED_BY_ITSELF)


def _be_first(confinement, function, arguments, ranks, writing, keep):
    """The first process of the sandbox: starts the ranks, and waits for them."""
    for rank in range(ranks):
        if os.fork():
            continue
        try:
            sandbox.close_other_files([writing, *keep])
            sandbox.clean_environment(os.getcwd())
            sandbox.limit_rank(confinement.limits)
            answer = function(*([rank] if ranks > 1 else []), *arguments)
        except BaseException as error:
            answer = type(error).__name__
        tell(writing, answer)
        os._exit(0)
    while ranks:
        _, status = os.wait()
        if status:
            tell(writing, f"ended: {os.waitstatus_to_exitcode(status)}")
        ranks -= 1


def tell(writing, answer):
    os.write(writing, json.dumps(answer).encode() + b"\n")


def until_end(reading):
    """All that comes from a pipe until no process holds its other end. Fails when that takes too long."""
    data = b""
    with open(reading, "rb", buffering=0) as file:
        while True:
            assert select.select([file], [], [], WAIT)[0], f"something still runs after {WAIT} s; it has said {data!r}"
            part = file.read(1 << 16)
            if not part:
                return data
            data += part


def error_of(function, *arguments):
    """To be run in a sandbox: the number of the OSError that the function raises, or 0."""
    try:
        function(*arguments)
    except OSError as error:
        return error.errno
    return 0


def daemonize():
    """To be run in a sandbox: leaves a daemon that nothing but SIGKILL ends. It holds open what the caller of `run`
    reads to its end."""
    began, begun = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        for number in range(1, 32):
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_IGN)
        os.write(begun, b"daemon")
        while True:
            signal.pause()
    os.wait()
    return os.read(began, 10).decode()


def bomb():
    """To be run in a sandbox: forks as often as it can; how often, and the error that ended it."""
    forks = 0
    try:
        while True:
            if os.fork() == 0:
                while True:
                    signal.pause()
            forks += 1
    except OSError as error:
        return [forks, error.errno]
