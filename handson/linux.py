"""Linux's data on processes and on itself (proc(5)), and requests of a process (prctl(2)). Only this module parses
these formats.

Batch commands, sandboxes and training scripts import it, so it needs only the standard library, and imports ctypes
late. In these functions a `process` is a number, "self", or "PID/task/TID" for one thread of a process.
"""

import functools
import os
import pwd
import signal
from collections import namedtuple

DIE_WITH_PARENT, DUMPABLE, SUBREAPER, NO_NEW_PRIVILEGES = 1, 4, 36, 38  # <linux/prctl.h>
SYS_ADMIN = 21  # <linux/capability.h>
MACHINE = 0xEFFFFFFC  # <linux/proc_ns.h>: the process namespace of the machine itself
# settings that keep ordinary users from creating namespaces: name, value that refuses, value that allows
NAMESPACE_SETTINGS = (
    ("user.max_user_namespaces", "0", "10000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
TICKS = os.sysconf("SC_CLK_TCK")  # clock ticks per second


# the user of this process; the fields have the names of pwd's entries
User = namedtuple("User", "pw_name pw_dir pw_shell")


def user():
    """Return the User from passwd; in a container without an entry for it, from the environment, or from the number."""
    number = os.geteuid()
    try:
        found = pwd.getpwuid(number)
        return User(found.pw_name, found.pw_dir, found.pw_shell)
    except KeyError:
        name = os.environ.get("USER") or os.environ.get("LOGNAME") or str(number)
        return User(name, os.environ.get("HOME") or "/", os.environ.get("SHELL") or "/bin/sh")


@functools.cache
def libc():
    """Return the C library through ctypes, which keeps its errors for ctypes.get_errno()."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def checked(result, what):
    """Return `result`, which a function of `libc` has returned. Raises the corresponding OSError. what: the attempted
    action."""
    if result < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def prctl(option, value):
    """Change an attribute of this process. Raises OSError."""
    from ctypes import c_ulong

    checked(libc().prctl(option, *map(c_ulong, (value, 0, 0, 0))), f"prctl {option}")


def end_with_parent():
    """Make the kernel kill this process when the thread that started it ends, even during a computation. Raises
    OSError."""
    prctl(DIE_WITH_PARENT, signal.SIGKILL)


def adopt_orphans():
    """Make every orphan among this process's descendants its child, so that no daemon escapes with a double fork.
    Raises OSError."""
    prctl(SUBREAPER, 1)


def every_pid():
    """Return the numbers of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def pids_of_user():
    """Return the numbers of the processes of this user."""
    for pid in every_pid():
        try:
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                yield pid
        except OSError:
            continue  # it has ended


def stat(process):
    """Return the fields of proc_pid_stat(5) as bytes, starting with the state, field 3, or None if there is no such
    process."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def runs(process):
    """Return whether a process exists and has not ended. A process that has ended remains as a "zombie" until its
    parent reads its status."""
    return (stat(process) or [b"Z"])[0] != b"Z"


def exit_code(process):
    """Return how a "zombie" ended: its status, or the negative number of the signal that killed it. None once its
    parent has read the status."""
    fields = stat(process)
    return os.waitstatus_to_exitcode(int(fields[49])) if fields and fields[0] == b"Z" else None


def parent(process):
    """Return the number of the parent, or 0 if there is none."""
    fields = stat(process)
    return int(fields[1]) if fields else 0


def name(process):
    """Return the name of the program that a process runs, at most 15 letters, or "" if there is no such process."""
    try:
        with open(f"/proc/{process}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_time(process):
    """Return when a process started, in clock ticks since the machine's start, or None if there is no such process."""
    fields = stat(process)
    return int(fields[19]) if fields else None


def threads(process):
    """Return the threads of a process, each as "PID/task/TID"; none once it has ended."""
    try:
        return [f"{process}/task/{thread}" for thread in os.listdir(f"/proc/{process}/task")]
    except OSError:
        return []


def children(process):
    """Return the numbers of the children of a process, including adopted ones."""
    found = []
    for thread in threads(process):
        try:
            with open(f"/proc/{thread}/children") as file:
                found += map(int, file.read().split())
        except OSError:
            continue  # it has ended
    return found


def environment(process):
    """Return the variables with which a process was started: name -> value, as bytes. Raises OSError if it has ended,
    or belongs to another user."""
    with open(f"/proc/{process}/environ", "rb") as file:
        return dict(line.split(b"=", 1) for line in file.read().split(b"\0") if b"=" in line)


def command(process):
    """Return (the command line of a process, its working folder); empty if it has ended, or belongs to another user."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return file.read(), os.readlink(f"/proc/{process}/cwd")
    except OSError:
        return b"", ""


def process_namespace():
    """Return the number of this process's namespace of process numbers, which differs in a container and in a job with
    virtual nodes. Raises OSError without /proc."""
    return int(os.readlink("/proc/self/ns/pid")[5:-1])


def memory(process):
    """Return (bytes of address space, bytes of resident memory). Raises OSError if the process has ended, or without
    /proc."""
    with open(f"/proc/{process}/statm") as file:
        space, resident = file.read().split()[:2]
    return int(space) * PAGE, int(resident) * PAGE


def limit_growth(size):
    """Make the kernel refuse this process more than `size` further bytes of data, resident or not (getrlimit(2):
    RLIMIT_DATA)."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = (_sum("/proc/self/status", ("VmData:",)) or 0) + size
    resource.setrlimit(resource.RLIMIT_DATA, (soft if most == resource.RLIM_INFINITY else min(soft, most), most))


def own_memory(process):
    """Return the bytes of resident memory without files (proc_pid_status(5): RssAnon and RssShmem). After a fork,
    unchanged memory counts for both processes. 0 once the process has ended."""
    return _sum(f"/proc/{process}/status", ("RssAnon:", "RssShmem:")) or 0


def share_of_memory(process):
    """Return the same, but memory that n processes share counts as one n-th for each (proc_pid_smaps(5)). Takes
    milliseconds. None if this process may not read it, and once the process has ended."""
    return _sum(f"/proc/{process}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))


def _sum(path, names):
    """Return the sum in bytes of lines ``Name: 1234 kB``, or None if the file cannot be read."""
    try:
        with open(path) as file:
            return sum(int(line.split()[1]) << 10 for line in file if line.startswith(names))
    except OSError:
        return None


def mapped_files(word, process="self"):
    """Return the mapped files of a process, such as libraries, whose path contains `word`; none if it cannot be
    inspected."""
    try:
        with open(f"/proc/{process}/maps") as maps:
            return sorted({line.split(maxsplit=5)[5].strip() for line in maps if word in line})
    except OSError:  # it has ended, or belongs to another user; or this is not Linux
        return []


def file_in_memory(process, name):
    """Return the path at which the file in memory (memfd_create) called `name` of a process of this user can be opened,
    or None if it has none, or has ended."""
    try:
        for number in os.listdir(f"/proc/{process}/fd"):
            if os.readlink(path := f"/proc/{process}/fd/{number}").startswith(f"/memfd:{name} "):
                return path
    except OSError:
        return None
    return None


def number_inside(process):
    """Return the number of a process in its own, innermost namespace (source: proc_pid_status(5), NSpid)."""
    with open(f"/proc/{process}/status") as file:
        return int(next(line for line in file if line.startswith("NSpid:")).split()[-1])


def bytes_sent(process="self"):
    """Return the bytes that the network interfaces of a process's node have sent so far, without loopback (source:
    proc_pid_net(5))."""
    with open(f"/proc/{process}/net/dev") as file:
        lines = [line.split(":") for line in file.readlines()[2:]]
    return sum(int(numbers.split()[8]) for name, numbers in lines if name.strip() != "lo")


def has_capability(number):
    """Return whether this process has a capability, such as SYS_ADMIN, which root of a container often lacks."""
    try:
        with open("/proc/self/status") as file:
            return any(int(line.split()[1], 16) & 1 << number for line in file if line.startswith("CapEff:"))
    except OSError:
        return False


BY_ANYTHING = (1, 2, 3, 6, 7)  # columns of proc_stat(5): user, nice, system, irq and softirq
BY_PROGRAMS = (1, 2, 3, 8)  # user, nice, system, and steal (by other virtual machines)


def busy_ticks(columns=BY_ANYTHING):
    """Return core -> busy clock ticks since the machine's start, from these columns of proc_stat(5)."""
    with open("/proc/stat") as file:
        rows = [line.split() for line in file if line.startswith("cpu")][1:]
    return {int(row[0][3:]): sum(int(row[column]) for column in columns) for row in rows}


def used_ticks(process):
    """Return the clock ticks that a process and its ended children have used, or 0 if there is no such process."""
    return sum(map(int, (stat(process) or [])[11:15]))


BUSY = 8  # processes per core from which a machine counts as busy


def running():
    """Return how many processes and threads of this machine are computing or waiting for a core, without the calling
    one. Raises OSError without /proc."""
    with open("/proc/loadavg") as file:
        return int(file.read().split()[3].partition("/")[0]) - 1


def boot_id():
    """Return an identity of the machine from one start to the next, which containers share. Raises OSError without
    /proc."""
    return _setting("kernel.random.boot_id")


def refusing_setting():
    """Return (name, value that allows) of the setting that keeps ordinary users from creating namespaces, or None if
    none does."""
    for name, refuses, allows in NAMESPACE_SETTINGS:
        try:
            if _setting(name) == refuses:
                return name, allows
        except OSError:
            continue  # this kernel does not have it
    return None


def _setting(name):
    """Return the value of a sysctl(8)."""
    with open(f"/proc/sys/{name.replace('.', '/')}") as file:
        return file.read().strip()
