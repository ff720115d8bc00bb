"""What a process may use. The process sets these limits on itself just before it runs a student's code, and cleans its
environment."""

import ctypes
import os
import resource
import sys
from dataclasses import dataclass, field

from handson import linux
from handson.files import COURSE

MIB = 1 << 20
KEPT = ("LANG", "LC_ALL", "TZ", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "GLOO_SOCKET_IFNAME", "HANDSON_FRAMEWORKS")
BUSY = 20  # times as long as on an idle machine that something may take where many processes want each core
SECRET = tuple(map(str, (COURSE / "solutions", COURSE / "tests", *sorted((COURSE / "grader").rglob("instructors")))))


@dataclass(frozen=True)
class Limits:
    """The limits of each process, unless a comment says otherwise. At the limit of CPU time the process gets SIGXCPU,
    then SIGKILL; at the other limits system calls fail."""

    cpu_seconds: float = 60
    # of a whole run, without those in which other programs had its cores; the watcher enforces it
    wall_seconds: float = 120
    waiting_seconds: float = 60  # of a whole run in which no process computes; the watcher enforces it
    # address space that a process may add to what it has at the start; a control group's memory
    memory_bytes: int = 4096 * MIB
    # times memory_bytes that all processes of a run may have in memory; the watcher enforces it
    memory_together: int = 2
    # of a whole run in which no process computes, after which the ranks count as waiting for each other
    still_seconds: float = 2.0
    processes: int = 128  # processes and threads of all ranks together
    open_files: int = 256
    file_bytes: int = 64 * MIB  # of one file
    tmp_bytes: int = 256 * MIB  # of all files in the workplace, /tmp and /dev/shm together


@dataclass(frozen=True)
class Confinement:
    """What a sandbox shows. `readable`: paths of files and folders; `workplace`: the folder in which its processes
    start and may write.

    With a mount namespace, the workplace is a copy in memory: what is written into it is lost when the sandbox ends.
    """

    readable: list
    workplace: str
    limits: Limits = field(default_factory=Limits)
    hidden: tuple = SECRET  # folders that are never shown, even inside of readable ones
    own_network: bool = True  # else it has the network of the process that makes it, such as that of a virtual node


def address_space():
    """Bytes of address space that this process has."""
    return linux.memory("self")[0]


def threads_of_user():
    """The threads of this user on the whole machine. Without a user namespace the kernel counts them all; for root it
    counts none: 0."""
    return sum(len(linux.threads(process)) for process in linux.pids_of_user()) if os.getuid() else 0


def set_limits(limits, space, processes):
    """Set `limits` on this process. space: bytes of address space that it has now; processes: the most that the kernel
    may count for its user."""
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
    """Lower a limit. A limit that is lower already stays as it is."""
    _, ceiling = resource.getrlimit(kind)
    hard = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def _first_environment():
    """(begin, end) of the memory in which the kernel put this process's first environment: proc_pid_stat(5), env_start
    and env_end."""
    fields = linux.stat("self")
    return int(fields[47]), int(fields[48])


# read now, since some sandboxes have no /proc; it is the same in forked processes
FIRST_ENVIRONMENT = _first_environment()


def harmless_environment(workplace):
    """The environment variables of a process that runs a student's code. It sees no GPU: verdicts are the same on all
    machines, and ranks are forked, which CUDA does not allow."""
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
    """Leave only harmless variables, and clear the memory that /proc/self/environ shows: it would keep variables that
    were removed."""
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
