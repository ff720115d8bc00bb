"""The two calls of a box: `enter` in the process from which it forks the ranks, `limit_rank` in each rank before a student's code."""

import os

from grader.sandbox import kernel, landlock, limits, namespaces, seccomp
from grader.sandbox.doctor import FILES, LANDLOCK, NAMES, NETWORK, PROCESSES, USERS, in_force, works

_inside = {}  # in a sandbox: its address space at the start, in bytes; whether its processes are counted apart from others


class SandboxError(RuntimeError):
    """A layer that should be in force could not be made: the machine's fault, not the student's."""


def enter(confinement):
    """Returns in a new process, the first of a sandbox; the calling one waits for it, and ends with its status.

    To be called in a process with one thread, forked for this. Descriptors stay open. What the layers of this machine (`layers`)
    don't offer is left out. When the new process ends, or the calling one, all others in the sandbox are killed.
    Raises SandboxError, in either process.
    """
    try:
        _enter(confinement, in_force())
    except OSError as error:
        raise SandboxError(f"the sandbox can't be made: {error}") from error


def _enter(confinement, on):
    _inside.update(space=limits.address_space(), counted_apart=USERS in on)
    workplace = os.path.realpath(confinement.workplace)
    readable = [os.path.abspath(path) for path in confinement.readable]
    user = namespaces.users() if USERS in on else os.geteuid()
    lives = namespaces.fork_first_process(PROCESSES in on)
    if NETWORK in on:
        namespaces.new_network()
    if NAMES in on:
        namespaces.new_names()
    if FILES in on:
        namespaces.new_files(readable, workplace, confinement.limits.tmp_bytes, user)
        readable += ["/etc", "/dev", "/proc"]
        writable = [workplace, "/tmp", "/dev/shm"]
    else:
        os.chdir(workplace)
        readable += ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf"]
        writable = [workplace]
    namespaces.give_up_power(user)
    kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
    if LANDLOCK in on:
        landlock.restrict([*namespaces.SYSTEM, *readable], writable, namespaces.DEVICES)
    kernel.prctl(kernel.DUMPABLE, 0)  # no rank traces this process, even without Landlock
    namespaces.die_with_parent(lives)


def limit_rank(allowed):
    """Take from this process, for good, what a student's code has no use for; `allowed`: Limits. Raises SandboxError."""
    try:
        space = limits.address_space()
    except FileNotFoundError:  # a sandbox without /proc
        space = _inside["space"]
    others = 0 if _inside.get("counted_apart") else limits.threads_of_user()
    try:
        kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
        kernel.prctl(kernel.DUMPABLE, 0)
        limits.set_limits(allowed, space, others + allowed.processes)
        if works(landlock.abi):
            landlock.separate()
        if works(seccomp.supported):
            seccomp.install()
    except OSError as error:
        raise SandboxError(f"a rank can't be limited: {error}") from error
