"""Process handling for the scheduler and the runners: find live processes and the processes of a job, and wake a
process.

Whether a scheduler or a runner is alive is decided by its lock, never by a process number, which may belong to another
process by now. The kernel frees the lock at any end of the process, and on every machine that shares the directory.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import sys
import time

from handson import linux

PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def module_command(module, *arguments):
    """Return the command line that runs ``module.main()`` in the same Python, independent of the environment and the
    working directory.

    (``-m`` would need the package on the job's PYTHONPATH, and would import a ``random.py`` in the home directory.
    ``-S`` skips site-packages, because these modules use only the standard library.)
    """
    code = f"import sys; sys.path.append(sys.argv.pop(1)); from {module} import main; main()"
    return [sys.executable, "-I", "-S", "-c", code, PACKAGE_ROOT, *arguments]


def spawn(module, *arguments, keep=None, log=os.devnull):
    """Start ``module`` in its own session, with the descriptor `keep`; stderr is appended to the file `log`. Return its
    pid."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
    ]
    if keep is not None:
        os.set_inheritable(keep, True)
    inside = "PBS_JOBCOOKIE" in os.environ  # a job may submit another one, whose scheduler must not end with this job
    not_ours = ("PBS_", "HANDSON_NODE", "TMPDIR") if inside else ("PBS_", "HANDSON_NODE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(not_ours)}
    environment["HANDSON_PBS_PROCESS"] = "started inside a job" if inside else module
    command = module_command(module, *arguments)
    return os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)


def try_lock(path, create=True):
    """Return a descriptor that holds the lock `path`, or None if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise


class Bell:
    """A FIFO that wakes a waiting process: other processes `ring` it, and so does SIGCHLD."""

    def __init__(self, path):
        make_bell(path)
        # open for reading and writing, so that it never reports end of file
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.descriptor, warn_on_full_buffer=False)

    def wait(self, seconds):
        """Wait until it rings, or for `seconds`, and return the bytes that were rung."""
        try:
            select.select([self.descriptor], [], [], max(0, seconds))
            return os.read(self.descriptor, 65536)
        except BlockingIOError:
            return b""

    def close(self):
        signal.set_wakeup_fd(-1)
        os.close(self.descriptor)


def make_bell(path):
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        pass


def ring(path, byte=b"!"):
    """Wake the process that waits on the bell `path`. Return False if there is none."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return False
        raise
    try:
        os.write(descriptor, byte)
    except BlockingIOError:
        pass  # the FIFO is full, so the process wakes up anyway
    finally:
        os.close(descriptor)
    return True


def boot_identity():
    """Return a string that changes when the machine, or this container, restarts. (HANDSON_PBS_BOOT_ID replaces it in
    tests.)"""
    pretended = os.environ.get("HANDSON_PBS_BOOT_ID")
    if pretended:
        return pretended
    return f"{linux.boot_id()}/{linux.start_time(1)}"


def _serves_the_queue(pid):
    """Return whether process `pid` is a scheduler or a runner (which may have been started inside a job, and outlives
    it)."""
    try:
        return b"HANDSON_PBS_PROCESS" in linux.environment(pid)
    except OSError:
        return False


def children(root):
    """Return the living children of process `root`."""
    found = [(pid, linux.stat(pid)) for pid in linux.every_pid()]
    return [
        pid
        for pid, stat in found
        if stat and int(stat[1]) == root and stat[0] not in (b"Z", b"X") and not _serves_the_queue(pid)
    ]


def descendants(root):
    """Return the living descendants of process `root`, without zombies, and without schedulers, runners and their
    descendants."""
    children = {}
    for pid in linux.every_pid():
        stat = linux.stat(pid)
        if stat:
            children.setdefault(int(stat[1]), []).append((pid, stat[0]))
    found, queue = [], [root]
    while queue:
        for pid, state in children.get(queue.pop(), ()):
            if _serves_the_queue(pid):
                continue
            queue.append(pid)
            if state not in (b"Z", b"X"):
                found.append(pid)
    return found


def carrying(variable):
    """Return the processes of this user that were started with ``NAME=value`` (`variable`) in their environment."""
    name, _, value = variable.encode().partition(b"=")
    found = []
    for pid in linux.every_pid():
        try:
            if pid != os.getpid() and linux.environment(pid).get(name) == value:
                found.append(pid)
        except OSError:
            continue  # it has ended, or belongs to another user
    return [pid for pid in found if linux.runs(pid)]


def cpu_seconds(pids):
    """Return the CPU time that living processes, and their children that have ended, have used so far."""
    ticks = sum(int(number) for pid in pids for number in (linux.stat(pid) or [])[11:15])
    return ticks / linux.TICKS


def memory(pids):
    """Return (bytes of address space, bytes of resident memory) of living processes together."""
    found = [(0, 0)]
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            found.append(linux.memory(pid))
    return tuple(map(sum, zip(*found)))


def in_session(session, started):
    """Return the living processes of session `session`, if its leader is still the one that started at `started`
    (ticks)."""
    leader = linux.start_time(session)
    if leader is not None and leader != started:
        return []
    found = []
    for pid in linux.every_pid():
        stat = linux.stat(pid)
        if stat and int(stat[3]) == session and stat[0] != b"Z" and int(stat[19]) >= started:
            found.append(pid)
    return found


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def kill_all(find, ended, seconds=30):
    """Send KILL to the processes that `find()` returns until there are none. Return False if some are left after
    `seconds`. ended: see `reap`."""
    end = time.monotonic() + seconds
    while pids := find():
        send(pids, signal.SIGKILL)
        if time.monotonic() > end:
            return False
        reap(ended)
        time.sleep(0.002)
    return True


def reap(ended):
    """Collect every child that has ended, in the dict `ended`: pid -> wait status."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended[pid] = status
