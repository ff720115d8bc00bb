"""What boxes call: `bound_together` where they are forked, `prepare` before they fork a process, `enter` in that one, and `limit_rank`
in each rank before a student's code."""

import os
from contextlib import contextmanager, suppress
from pathlib import Path

from grader.sandbox import cgroups, kernel, landlock, limits, namespaces, seccomp
from grader.sandbox.doctor import CGROUPS, FILES, LANDLOCK, NAMES, NETWORK, PROCESSES, USERS, in_force, works
from handson import linux

TRUSTED = 8  # processes around the ranks


class SandboxError(RuntimeError):
    """A layer that should be in force could not be made: the machine's fault, not the student's."""


class _State:
    """What a process knows of the sandbox that it prepared, or is in."""

    user = None  # who runs in it; None: not prepared
    parent_lives = life = None  # the ends of a pipe; the one for writing is open as long as the process that prepared it lives
    others = None  # how many threads the kernel counts together with those of the sandbox; None: not known
    address_space = 0  # bytes, at the start


def bound_together(allowed):
    """Bound what this process and all that it starts use together, where control groups allow it; `allowed`: Limits.

    To be called once, in the process from which boxes are forked: to change groups takes the kernel 10 ms, to be forked in one nothing.
    """
    if CGROUPS in in_force():
        with _failures("bounded"):
            cgroups.join(allowed.memory_bytes + allowed.tmp_bytes, allowed.processes + TRUSTED)


def prepare():
    """Let the process forked next be the first of a sandbox: it only has to call `enter`. Saves the fork that `enter` does otherwise.

    The calling process must have one thread, can start no others from then on, and can prepare one sandbox.
    """
    on = in_force()
    with _failures("prepared"):
        _State.user = namespaces.users() if USERS in on else os.geteuid()
        _State.others = 0 if USERS in on else limits.threads_of_user()
        if PROCESSES in on:
            kernel.unshare(kernel.NEW_PROCESSES, "PID namespace")
        _State.parent_lives, _State.life = os.pipe()


def enter(confinement):
    """Confine this process, which becomes the first of a sandbox: when it ends, or its parent does, all others in it are killed.

    What the layers of this machine (`layers`) don't offer is left out. Descriptors stay open. Unless the parent called `prepare`, this
    function forks, and returns in the child; the calling process waits for that one, and ends with its status.
    Raises SandboxError, in either process.
    """
    if _State.user is None:
        _fork()
    os.close(_State.life)
    on = in_force()
    with _failures("made"):
        _confine(confinement, on)
        _die_with_parent()


def _fork():
    parent = os.getppid()
    prepare()
    first = os.fork()
    if first:
        linux.end_with_parent()
        linux.adopt_orphans()
        if os.getppid() != parent:
            os._exit(1)
        limits.close_other_files([_State.life])
        namespaces.wait_for(first)


def _confine(confinement, on):
    _State.address_space = limits.address_space()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # when memory is short, the kernel ends sandboxes first
    workplace = os.path.realpath(confinement.workplace)
    readable = [os.path.abspath(path) for path in confinement.readable]
    if NETWORK in on:
        namespaces.new_network()
    if NAMES in on:
        namespaces.new_names()
    if FILES in on:
        namespaces.new_files(readable, workplace, confinement.limits.tmp_bytes, _State.user, confinement.hidden)
        readable += ["/etc", "/dev"]
        writable = [workplace, "/tmp", "/dev/shm"]
    else:
        os.chdir(workplace)
        readable += ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf"]
        writable = [workplace]
    namespaces.give_up_power(_State.user)
    kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
    if LANDLOCK in on:
        landlock.restrict([*namespaces.SYSTEM, "/proc", *readable], writable, namespaces.DEVICES)
    kernel.prctl(kernel.DUMPABLE, 0)  # no rank traces this process, even without Landlock


def _die_with_parent():
    """Comes last, since a change of user takes it back. A parent that died before is found out by its pipe."""
    linux.end_with_parent()
    os.set_blocking(_State.parent_lives, False)
    try:
        os.read(_State.parent_lives, 1)
        os._exit(1)
    except BlockingIOError:
        os.close(_State.parent_lives)


def limit_rank(allowed):
    """Take from this process, for good, what a student's code has no use for; `allowed`: Limits. Raises SandboxError."""
    try:
        space = limits.address_space()
    except FileNotFoundError:  # in a sandbox without /proc
        space = _State.address_space
    others = limits.threads_of_user() if _State.others is None else _State.others
    with _failures("made for a rank"):
        kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
        kernel.prctl(kernel.DUMPABLE, 0)
        limits.set_limits(allowed, space, others + allowed.processes)
        if works(landlock.abi):
            landlock.separate()
        if works(seccomp.supported):
            seccomp.install()


@contextmanager
def _failures(when):
    try:
        yield
    except OSError as error:
        raise SandboxError(f"the sandbox can't be {when}: {error}") from error
