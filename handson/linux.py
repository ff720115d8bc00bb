"""What Linux shows of processes and of itself (proc(5)), and what a process asks of it (prctl(2)). The one place that
knows these formats.

Batch commands, sandboxes and trainings import it: it needs the standard library only, and ctypes not before it is used.
In these functions a `process` is a number, "self", or "PID/task/TID" for one thread of a process.
"""

import functools
import os
import pwd
import signal
from collections import namedtuple

DIE_WITH_PARENT, DUMPABLE, SUBREAPER, NO_NEW_PRIVILEGES = 1, 4, 36, 38  # <linux/prctl.h>
SYS_ADMIN = 21  # <linux/capability.h>
MACHINE = 0xEFFFFFFC  # <linux/proc_ns.h>: the process namespace of the machine itself
# by which an administrator keeps ordinary users from making namespaces: name, value that refuses, value that allows
NAMESPACE_SETTINGS = (
    ("user.max_user_namespaces", "0", "10000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
TICKS = os.sysconf("SC_CLK_TCK")  # clock ticks a second


# who runs this process, with the names of pwd's entries
User = namedtuple("User", "pw_name pw_dir pw_shell")


def user():
    """The User, by passwd; in a container whose user it does not have, by the environment, or else by the number."""
    number = os.geteuid()
    try:
        found = pwd.getpwuid(number)
        return User(found.pw_name, found.pw_dir, found.pw_shell)
    except KeyError:
        name = os.environ.get("USER") or os.environ.get("LOGNAME") or str(number)
        return User(name, os.environ.get("HOME") or "/", os.environ.get("SHELL") or "/bin/sh")


@functools.cache
def libc():
    """The C library, as ctypes has it; errors are kept for ctypes.get_errno()."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def checked(result, what):
    """`result`, which a function of `libc` returned. Raises the OSError that it stands for, with what was tried."""
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
    """Have the kernel kill this process when the thread that started it ends, in the middle of a computation if need
    be. Raises OSError."""
    prctl(DIE_WITH_PARENT, signal.SIGKILL)


def adopt_orphans():
    """Make every orphan among our descendants our child, so that no daemon escapes by a double fork. Raises OSError."""
    prctl(SUBREAPER, 1)


def every_pid():
    """The numbers of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def pids_of_user():
    """The numbers of the processes of this user."""
    for pid in every_pid():
        try:
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                yield pid
        except OSError:
            continue  # it has ended


def stat(process):
    """The fields of proc_pid_stat(5) as bytes, from the state on, which is field 3; None when there is no such
    process."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def runs(process):
    """Whether a process is there and has not ended. One that has ended stays as a "zombie" until its parent asks
    how."""
    return (stat(process) or [b"Z"])[0] != b"Z"


def exit_code(process):
    """How a process ended that is still a "zombie": its status, or the negative number of the signal that killed it.
    None once its parent has asked for it."""
    fields = stat(process)
    return os.waitstatus_to_exitcode(int(fields[49])) if fields and fields[0] == b"Z" else None


def parent(process):
    """The number of the parent; 0 where there is none."""
    fields = stat(process)
    return int(fields[1]) if fields else 0


def name(process):
    """The name of the program that a process runs, at most 15 letters of it; "" when there is no such process."""
    try:
        with open(f"/proc/{process}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_time(process):
    """When a process started, in clock ticks since the machine started; None when there is no such process."""
    fields = stat(process)
    return int(fields[19]) if fields else None


def threads(process):
    """The threads of a process, each as "PID/task/TID"; none once it has ended."""
    try:
        return [f"{process}/task/{thread}" for thread in os.listdir(f"/proc/{process}/task")]
    except OSError:
        return []


def children(process):
    """The numbers of the processes that a process has started, or inherited."""
    found = []
    for thread in threads(process):
        try:
            with open(f"/proc/{thread}/children") as file:
                found += map(int, file.read().split())
        except OSError:
            continue  # it has ended
    return found


def environment(process):
    """The variables that a process was started with: name -> value, as bytes. Raises OSError where it has ended, or is
    somebody else's."""
    with open(f"/proc/{process}/environ", "rb") as file:
        return dict(line.split(b"=", 1) for line in file.read().split(b"\0") if b"=" in line)


def command(process):
    """(the command line of a process, the folder it runs in); empty where it has ended, or is somebody else's."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return file.read(), os.readlink(f"/proc/{process}/cwd")
    except OSError:
        return b"", ""


def process_namespace():
    """The number of the namespace that this process's number belongs to: a container, or a job with virtual nodes, has
    one of its own. Raises OSError where there is no /proc."""
    return int(os.readlink("/proc/self/ns/pid")[5:-1])


def memory(process):
    """(bytes of address space, bytes in memory). Raises OSError where the process has ended, or there is no /proc."""
    with open(f"/proc/{process}/statm") as file:
        space, resident = file.read().split()[:2]
    return int(space) * PAGE, int(resident) * PAGE


def limit_growth(size):
    """Have the kernel refuse this process more than `size` further bytes, in memory or not (getrlimit(2):
    RLIMIT_DATA)."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = (_sum("/proc/self/status", ("VmData:",)) or 0) + size
    resource.setrlimit(resource.RLIMIT_DATA, (soft if most == resource.RLIM_INFINITY else min(soft, most), most))


def own_memory(process):
    """Bytes in memory that are no files' (proc_pid_status(5): RssAnon and RssShmem). After a fork, what was not written
    since counts for both processes. 0 once the process has ended."""
    return _sum(f"/proc/{process}/status", ("RssAnon:", "RssShmem:")) or 0


def share_of_memory(process):
    """The same, but what n processes share counts as one n-th for each (proc_pid_smaps(5)). Takes milliseconds. None if
    this process may not know it, and once the process has ended."""
    return _sum(f"/proc/{process}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))


def _sum(path, names):
    """The sum in bytes of lines ``Name:  1234 kB``; None if the file can't be read."""
    try:
        with open(path) as file:
            return sum(int(line.split()[1]) << 10 for line in file if line.startswith(names))
    except OSError:
        return None


def mapped_files(word, process="self"):
    """The files that a process has mapped into its memory, such as libraries, and whose path contains `word`; none
    where it can't be looked into."""
    try:
        with open(f"/proc/{process}/maps") as maps:
            return sorted({line.split(maxsplit=5)[5].strip() for line in maps if word in line})
    except OSError:  # it has ended, or is somebody else's; or no Linux
        return []


def file_in_memory(process, name):
    """The path at which the file in memory (memfd_create) called `name` of a process of this user can be opened; None
    if it has none, or has ended."""
    try:
        for number in os.listdir(f"/proc/{process}/fd"):
            if os.readlink(path := f"/proc/{process}/fd/{number}").startswith(f"/memfd:{name} "):
                return path
    except OSError:
        return None
    return None


def number_inside(process):
    """The number that a process has in its own, innermost namespace (source: proc_pid_status(5), NSpid)."""
    with open(f"/proc/{process}/status") as file:
        return int(next(line for line in file if line.startswith("NSpid:")).split()[-1])


def bytes_sent(process="self"):
    """Bytes that the network interfaces of a process's node have sent so far, without loopback (source:
    proc_pid_net(5))."""
    with open(f"/proc/{process}/net/dev") as file:
        lines = [line.split(":") for line in file.readlines()[2:]]
    return sum(int(numbers.split()[8]) for name, numbers in lines if name.strip() != "lo")


def has_capability(number):
    """Whether this process has a capability, such as SYS_ADMIN, which root of a container often lacks."""
    try:
        with open("/proc/self/status") as file:
            return any(int(line.split()[1], 16) & 1 << number for line in file if line.startswith("CapEff:"))
    except OSError:
        return False


BY_ANYTHING = (1, 2, 3, 6, 7)  # columns of proc_stat(5): user, nice, system, irq and softirq
BY_PROGRAMS = (1, 2, 3, 8)  # user, nice, system, and steal: by other virtual machines


def busy_ticks(columns=BY_ANYTHING):
    """core -> clock ticks that it has been used since the machine started, by what these columns of proc_stat(5)
    count."""
    with open("/proc/stat") as file:
        rows = [line.split() for line in file if line.startswith("cpu")][1:]
    return {int(row[0][3:]): sum(int(row[column]) for column in columns) for row in rows}


def used_ticks(process):
    """Clock ticks of cores that a process has used, with those of its children that have ended; 0 where there is no
    such process."""
    return sum(map(int, (stat(process) or [])[11:15]))


BUSY = 8  # processes that want each core, from which on a machine is called busy


def running():
    """How many processes and threads of this machine are computing or wait for a core, without the one that asks.
    Raises OSError where there is no /proc."""
    with open("/proc/loadavg") as file:
        return int(file.read().split()[3].partition("/")[0]) - 1


def boot_id():
    """A name that the machine has from one start to the next; containers share it. Raises OSError where there is no
    /proc."""
    return _setting("kernel.random.boot_id")


def refusing_setting():
    """(name, value that allows) of the setting that keeps ordinary users from making namespaces; None where none
    does."""
    for name, refuses, allows in NAMESPACE_SETTINGS:
        try:
            if _setting(name) == refuses:
                return name, allows
        except OSError:
            continue  # this kernel doesn't have it
    return None


def _setting(name):
    """The value of a sysctl(8)."""
    with open(f"/proc/sys/{name.replace('.', '/')}") as file:
        return file.read().strip()
