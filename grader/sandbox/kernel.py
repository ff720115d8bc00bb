"""System calls for the sandbox for which Python 3.11 has no functions, through ctypes. Each raises OSError, which names
the call."""

import ctypes
import os
import platform
import struct

from handson import linux
from handson.linux import DUMPABLE, NO_NEW_PRIVILEGES, checked, prctl  # noqa: F401

libc = linux.libc()
ARCHITECTURE = {"x86_64": "x86-64", "aarch64": "aarch64"}.get(platform.machine())

# <linux/sched.h>
NEW_MOUNTS, NEW_HOSTNAME, NEW_IPC, NEW_USERS, NEW_PROCESSES, NEW_NETWORK = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
# <sys/mount.h>
BIND, RECURSIVE, PRIVATE = 4096, 16384, 1 << 18
NO_SETUID, NO_DEVICES, NO_PROGRAMS = 2, 4, 8
DETACH = 2
# <linux/mount.h>, <linux/fcntl.h>
READ_ONLY, WITHOUT_SETUID, WITHOUT_DEVICES = 1, 2, 4  # MOUNT_ATTR_*
CURRENT_FOLDER, WITH_ALL_BELOW = -100, 0x8000  # AT_*


def call(number, what, *arguments):
    """Make the system call `number`. The arguments are integers, bytes or None; `what` names the call in errors."""
    return checked(libc.syscall(ctypes.c_long(number), *map(_word, arguments)), what)


def _word(argument):
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def unshare(flags, what="unshare"):
    checked(libc.unshare(flags), what)


def mount(source, target, kind="none", flags=0, options=""):
    what = f"mount {target}"
    checked(
        libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode()),
        what,
    )


def bind(source, target):
    """Show `source`, including everything mounted below it, also at `target`."""
    mount(source, target, flags=BIND | RECURSIVE)


def detach(target):
    checked(libc.umount2(os.fsencode(target), DETACH), f"umount {target}")


def pivot_root(root, old):
    call({"x86-64": 155, "aarch64": 41}[ARCHITECTURE], "pivot_root", os.fsencode(root), os.fsencode(old))


def set_mount_attributes(path, attributes, below=True):
    """Give the mount at `path` these attributes, and with `below` all mounts below it, too (Linux 5.12)."""
    structure = struct.pack("QQQQ", attributes, 0, 0, 0)
    flags = WITH_ALL_BELOW if below else 0
    call(442, f"mount_setattr {path}", CURRENT_FOLDER, os.fsencode(path), flags, structure, len(structure))


def drop_capabilities():
    checked(libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24)), "capset")


def set_hostname(name):
    checked(libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")
