"""The limits of a process. It sets them on itself just before it runs a student's code, and cleans its environment."""

import ctypes
import os
import resource
import sys
from dataclasses import dataclass, field

from handson import linux
from handson.files import COURSE

MIB = 1 << 20
KEPT = ("LANG", "LC_ALL", "TZ", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "GLOO_SOCKET_IFNAME", "HANDSON_FRAMEWORKS")
BUSY = 20  # how many times as long as on an idle machine work may take if many processes compete for each core
SECRET = tuple(map(str, (COURSE / "solutions", COURSE / "tests", *sorted((COURSE / "grader").rglob("instructors")))))


@dataclass(frozen=True)
class Limits:
    """The limits of each process, unless a comment says otherwise. At the limit of CPU time the process gets SIGXCPU,
    then SIGKILL; at the other limits system calls fail."""

    cpu_seconds: float = 60
    # limit of a whole run, without the time in which other programs used its cores; the watcher enforces it
    wall_seconds: float = 120
    waiting_seconds: float = 60  # the time of a run in which no process computes; the watcher enforces it
    # address space that a process may add to its initial one; also the memory of a control group
    memory_bytes: int = 4096 * MIB
    # multiple of memory_bytes that all processes of a run may have in memory; the watcher enforces it
    memory_together: int = 2
    # the ranks count as deadlocked if no process has computed for this time
    still_seconds: float = 2.0
    processes: int = 128  # processes and threads of all ranks together
    open_files: int = 256
    file_bytes: int = 64 * MIB  # the largest size of one file
    tmp_bytes: int = 256 * MIB  # the size of all files in the workplace, /tmp and /dev/shm together


@dataclass(frozen=True)
class Confinement:
    """The view of a sandbox. `readable`: paths of files and folders; `workplace`: the folder in which its processes
    start and may write.

    With a mount namespace, the workplace is a copy in memory: changes are lost when the sandbox ends.
    """

    readable: list
    workplace: str
    limits: Limits = field(default_factory=Limits)
    hidden: tuple = SECRET  # folders that are never visible, even inside readable ones
    own_network: bool = True  # otherwise that of the parent process, for example of a virtual node


def address_space():
    """Return the bytes of address space of this process."""
    return linux.memory("self")[0]


def threads_of_user():
    """Return the number of this user's threads on the whole machine. Without a user namespace the kernel counts them
    all; for root it counts none: 0."""
    return sum(len(linux.threads(process)) for process in linux.pids_of_user()) if os.getuid() else 0


def set_limits(limits, space, processes):
    """Set `limits` on this process. space: bytes of its present address space; processes: the limit on the kernel's
    count for its user."""
    cpu = max(1, round(limits.cpu_seconds))
    _limit(resource.RLIMIT_AS, space + limits.memory_bytes)
    _limit(resource.RLIMIT_CPU, cpu, cpu + 1)
    _limit(resource.RLIMIT_NPROC, processes)
    _limit(resource.RLIMIT_NOFILE, limits.open_files)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_MEMLOCK, 0)
    _limit(resource.RLIMIT_MSGQUEUE, 0)
    _limit(resource.RLIMIT_NICE, 0)
    _limit(resource.RLIMIT_RTPRIO, 0)


def _limit(kind, soft, hard=None):
    """Lower a limit. A lower limit stays unchanged."""
    _, ceiling = resource.getrlimit(kind)
    hard = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def _first_environment():
    """Return (begin, end) of the memory in which the kernel put this process's first environment: proc_pid_stat(5),
    env_start and env_end."""
    fields = linux.stat("self")
    return int(fields[47]), int(fields[48])


# read now, because some sandboxes have no /proc; it is the same in forked processes
FIRST_ENVIRONMENT = _first_environment()


def harmless_environment(workplace):
    """Return the environment variables of a process that runs a student's code. It sees no GPU: verdicts are the same
    on all machines, and ranks are forked, which CUDA does not support."""
    return {
        "LANG": "C.UTF-8",
        "HANDSON_DEVICE": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        **{name: os.environ[name] for name in KEPT if name in os.environ},
        "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(workplace),
        "TMPDIR": "/tmp" if os.access("/tmp", os.W_OK) else str(workplace),
        "USER": "student",
        "LOGNAME": "student",
    }


def clean_environment(workplace):
    """Remove all but harmless variables, and clear the memory that /proc/self/environ shows, which keeps removed
    variables."""
    harmless = harmless_environment(workplace)
    os.environ.clear()
    start, end = FIRST_ENVIRONMENT
    ctypes.memset(start, 0, end - start)
    os.environ.update(harmless)


def close_other_files(keep):
    """Close all descriptors except 0, 1, 2 and those in `keep`."""
    begin = 3
    for descriptor in sorted(number for number in keep if number > 2):
        os.closerange(begin, descriptor)
        begin = descriptor + 1
    os.closerange(begin, 1 << 20)
