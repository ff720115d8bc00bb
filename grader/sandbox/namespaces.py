"""Give a process its own machine in new namespaces: file tree, network, processes and hostname (namespaces(7)).

Root creates them directly, and then becomes an otherwise unused user. An ordinary user first creates a user namespace,
which allows the rest.
"""

import errno
import fcntl
import os
import shutil
import signal
import socket
import struct
import sys
import time
from pathlib import Path

from grader.sandbox import kernel
from handson import linux

UNUSED_USERS = range(61184, 65520)  # systemd's range for running services, so no person has one of these numbers
INSIDE = 1000  # an ordinary user's number inside the user namespace
SIOCSIFFLAGS, UP_AND_RUNNING = 0x8914, 0x41

DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
ETC = tuple(
    f"/etc/{name}" for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "alternatives", "fonts")
)
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", *ETC)
OLD = "/.old"
ORPHANS_DIE = 60  # seconds, on a busy machine


def interpreter_paths():
    """Return the folders outside SYSTEM that this Python and its installed packages need. A folder behind a link has
    both names, because the kernel reports the paths of loaded libraries without links."""
    paths = [
        sys.prefix,
        sys.base_prefix,
        *(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))),
    ]
    kept = []
    for path in dict.fromkeys([*map(os.path.abspath, paths), *map(os.path.realpath, paths)]):
        if os.path.isdir(path) and not any(Path(path).is_relative_to(shown) for shown in (*SYSTEM, *kept)):
            kept.append(path)
    return kept


def users():
    """Acquire the right to create namespaces, and return the number of the user for their processes. Raises OSError."""
    if os.geteuid() == 0 and _has_other_users():
        if not linux.has_capability(linux.SYS_ADMIN):
            raise PermissionError(errno.EPERM, "root may not make them here, an ordinary user perhaps may")
        return UNUSED_USERS[os.getpid() % len(UNUSED_USERS)]  # sandboxes that run at the same time rarely share a user
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEW_USERS, "user namespace")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{INSIDE} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{INSIDE} {group} 1")
    return INSIDE


def _has_other_users():
    """Return whether root here can become another user, which is impossible in the user namespace of virtual nodes."""
    ranges = (map(int, line.split()) for line in Path("/proc/self/uid_map").read_text().splitlines())
    return any(first <= UNUSED_USERS[0] < first + count for first, _, count in ranges)


def give_up_power(user):
    """Become `user`, if this process is root, and drop all capabilities."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.drop_capabilities()


def wait_for(first):
    """Wait for the child `first`, kill the processes that it leaves, and end with its exit status, or 128 plus the
    number of its signal."""
    _, status = os.waitpid(first, 0)
    _kill_orphans()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _kill_orphans():
    """Kill all children of this process, and the orphans that it adopts, until there are none. There are such orphans
    only without a PID namespace."""
    end = time.monotonic() + ORPHANS_DIE
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        for child in linux.children("self"):
            os.kill(child, signal.SIGKILL)
        time.sleep(0.001)


def new_network():
    """Create a network that has only a loopback interface."""
    kernel.unshare(kernel.NEW_NETWORK, "network namespace")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", UP_AND_RUNNING))


def new_names():
    """Create a separate hostname and System V IPC."""
    kernel.unshare(kernel.NEW_HOSTNAME | kernel.NEW_IPC, "IPC and UTS namespaces")
    kernel.set_hostname("sandbox")


def new_files(readable, workplace, size, user, hidden=()):
    """Create a file tree of SYSTEM, of `readable` without the folders in `hidden`, and of a copy of `workplace` in
    memory.

    The files of `user` take at most `size` bytes. Call it in the first process of a PID namespace, so that /proc shows
    only the sandbox's processes. If the kernel allows no new /proc, there is none.
    """
    os.umask(0o022)  # with a stricter umask, as in PBS jobs, `user` could not enter the new folders
    shown = {path: os.path.realpath(path) for path in (*SYSTEM, *readable)}
    kernel.unshare(kernel.NEW_MOUNTS, "mount namespace")
    kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    tree = "/tmp"  # a folder that every machine has
    _in_memory(tree, "size=1m,nr_inodes=4k,mode=755")
    os.mkdir(tree + OLD)
    kernel.pivot_root(tree, tree + OLD)
    os.chdir("/")
    _in_memory("/.own", f"size={size},nr_inodes=16k,mode=755")
    for folder in ("/tmp", "/dev/shm"):
        _own(folder, user)
    for path, source in shown.items():
        _show(path, OLD + source)
    for path in hidden:
        if os.path.isdir(path):
            _in_memory(path, "size=4k,mode=000")
    _own(workplace, user)
    _own_dev()
    _own_etc(user)
    _own_proc()
    for mount in ("/.own", OLD):
        kernel.detach(mount)
        os.rmdir(mount)
    kernel.set_mount_attributes("/", kernel.READ_ONLY, below=False)
    os.chdir(workplace)


def _in_memory(folder, options):
    os.makedirs(folder, exist_ok=True)
    kernel.mount("sandbox", folder, "tmpfs", kernel.NO_SETUID | kernel.NO_DEVICES, options)


def _own(folder, user):
    """Make `folder` writable, in memory, with a copy of its files; /tmp and /dev/shm start empty."""
    part = f"/.own/{folder.replace('/', '_')}"
    if folder in ("/tmp", "/dev/shm"):
        os.mkdir(part)
    else:
        shutil.copytree(OLD + folder, part, symlinks=True)
    if os.geteuid() == 0:
        for path, folders, files in os.walk(part):
            for name in (".", *folders, *files):
                os.lchown(f"{path}/{name}", user, user)
    os.makedirs(folder, exist_ok=True)
    kernel.bind(part, folder)


def _show(path, source):
    """Show `source` at `path`, read-only. Does nothing if there is no `source`."""
    if os.path.isdir(source):
        os.makedirs(path, exist_ok=True)
    elif os.path.exists(source):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).touch()
    else:
        return
    kernel.bind(source, path)
    kernel.set_mount_attributes(path, kernel.READ_ONLY | kernel.WITHOUT_SETUID | kernel.WITHOUT_DEVICES)


def _own_dev():
    for device in DEVICES:
        Path(device).touch()
        kernel.bind(OLD + device, device)
    for name, number in {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}.items():
        os.symlink(f"/proc/self/fd{number}", f"/dev/{name}")


def _own_etc(user):
    for name, text in {
        "passwd": f"student:x:{user}:{user}::/tmp:/bin/sh\n",
        "group": f"student:x:{user}:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }.items():
        Path("/etc", name).write_text(text)


def _own_proc():
    os.mkdir("/proc")
    try:
        kernel.mount("proc", "/proc", "proc", kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_PROGRAMS, "hidepid=2")
    except PermissionError:  # some containers hide parts of /proc
        pass
