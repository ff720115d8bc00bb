"""The functions that create a sandbox: the server calls `bound_together` before it forks watchers, a watcher calls
`prepare` before it forks init, init calls `enter`, and each rank calls `limit_rank` before it runs a student's code."""

import os
from contextlib import contextmanager, suppress
from pathlib import Path

from grader.sandbox import cgroups, kernel, landlock, limits, namespaces, seccomp
from grader.sandbox.layers_in_force import CGROUPS, FILES, LANDLOCK, NAMES, NETWORK, PROCESSES, USERS, in_force, works
from handson import linux

TRUSTED = 8  # processes around the ranks


class SandboxError(RuntimeError):
    """A required layer could not be created. This is a problem of the machine, not of the student."""


class _State:
    """The state of the sandbox that this process has prepared, or that contains it."""

    user = None  # the user in the sandbox; None if none is prepared
    # the two ends of a pipe; the writing end is open while the process that prepared it lives
    parent_lives = life = None
    others = None  # threads outside the sandbox that the kernel counts with those inside; None if unknown
    address_space = 0  # bytes of address space when the sandbox was entered


def bound_together(allowed):
    """Limit the sum over this process and all processes that it starts, if control groups are available; `allowed`:
    Limits.

    Call it once, in the process that forks watchers: changing the group takes the kernel 10 ms, but a forked process
    inherits it without cost.
    """
    if CGROUPS in in_force():
        with _failures("bounded"):
            cgroups.join(allowed.memory_bytes + allowed.tmp_bytes, allowed.processes + TRUSTED)


def prepare():
    """Make the next forked process the first process of a sandbox: it only has to call `enter`, which then needs no
    fork.

    The calling process must have one thread, cannot start others afterwards, and can prepare only one sandbox.
    """
    on = in_force()
    with _failures("prepared"):
        _State.user = namespaces.users() if USERS in on else os.geteuid()
        _State.others = 0 if USERS in on else limits.threads_of_user()
        if PROCESSES in on:
            kernel.unshare(kernel.NEW_PROCESSES, "PID namespace")
        _State.parent_lives, _State.life = os.pipe()


def enter(confinement):
    """Confine this process. It becomes the first process of a sandbox: when it or its parent ends, all processes in the
    sandbox are killed.

    Layers that this machine does not have (see `layers`) are left out. Descriptors stay open. If the parent has not
    called `prepare`, this function forks, and returns in the child; the calling process waits for the child and ends
    with its status. Raises SandboxError, in either process.
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
    if NETWORK in on and confinement.own_network:
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
    kernel.prctl(kernel.DUMPABLE, 0)  # so that no rank can trace this process, even without Landlock


def _die_with_parent():
    """End this process with its parent. Call it last, because a change of user cancels it. If the parent has ended
    already, its pipe is closed, and this process ends now."""
    linux.end_with_parent()
    os.set_blocking(_State.parent_lives, False)
    try:
        os.read(_State.parent_lives, 1)
        os._exit(1)
    except BlockingIOError:
        os.close(_State.parent_lives)


def limit_rank(allowed, peers=()):
    """Remove from this process, permanently, all permissions that a student's code does not need. allowed: Limits;
    peers: the numbers of other ranks, which it may not end. Raises SandboxError."""
    try:
        space = limits.address_space()
    except FileNotFoundError:  # the sandbox has no /proc
        space = _State.address_space
    others = limits.threads_of_user() if _State.others is None else _State.others
    with _failures("made for a rank"):
        kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
        kernel.prctl(kernel.DUMPABLE, 0)
        limits.set_limits(allowed, space, others + allowed.processes)
        if works(landlock.abi):
            landlock.separate()
        if works(seccomp.supported):
            seccomp.install(peers)


@contextmanager
def _failures(when):
    try:
        yield
    except OSError as error:
        raise SandboxError(f"the sandbox can't be {when}: {error}") from error
