"""Landlock (landlock(7)): a process gives up access to all files that it does not name, for itself and all its later
children. It needs no privilege."""

import errno
import os
import stat
import struct

from grader.sandbox import kernel

CREATE, ADD, RESTRICT = 444, 445, 446
# rights of <linux/landlock.h>; ALL_RIGHTS: ABI version -> the rights that it supports
EXECUTE, WRITE_FILE, READ_FILE, READ_FOLDER = 1, 2, 4, 8
ALL_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | 1 << 15  # truncate, device ioctl
MAKE_DEVICES = 1 << 6 | 1 << 11  # character, block
ABSTRACT_SOCKETS, SIGNALS = 1, 2  # scopes (ABI 6): forbid connections and signals to processes outside


def abi():
    """Return the version of Landlock in this kernel. Raises OSError if the kernel has none, or it is switched off."""
    return kernel.call(CREATE, "landlock", None, 0, 1)


def restrict(readable, writable, devices=()):
    """Restrict this process to reading in `readable`, reading and writing in `writable`, and reading and writing the
    `devices`."""
    rights = ALL_RIGHTS[min(abi(), 5)]
    ruleset = _ruleset(rights)
    try:
        for path in readable:
            _allow(ruleset, path, EXECUTE | READ_FILE | READ_FOLDER)
        for path in writable:
            _allow(ruleset, path, rights & ~MAKE_DEVICES)
        for path in devices:
            _allow(ruleset, path, READ_FILE | WRITE_FILE)
        _enforce(ruleset)
    finally:
        os.close(ruleset)


def separate():
    """Keep this process and its later children from tracing others and (ABI 6) from sending them signals."""
    ruleset = _ruleset(MAKE_DEVICES)
    try:
        _enforce(ruleset)
    finally:
        os.close(ruleset)


def _ruleset(rights):
    scopes = ABSTRACT_SOCKETS | SIGNALS if abi() >= 6 else 0
    attributes = struct.pack("QQQ", rights, 0, scopes)[: 24 if scopes else 8]
    return kernel.call(CREATE, "landlock", attributes, len(attributes), 0)


def _allow(ruleset, path, rights):
    """Allow `rights` at and below `path`. Does nothing if the path does not exist or cannot be reached."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= OF_FILES
        kernel.call(ADD, f"landlock {path}", ruleset, 1, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


def _enforce(ruleset):
    kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
    kernel.call(RESTRICT, "landlock", ruleset, 0)
