"""A watcher for one rank. It reports what the rank itself cannot: that it was killed, is stopped, or makes no progress any more.

mpiexec ends all ranks when one dies, and does not say which one it was. The watcher is the process that mpiexec (or torchrun) started; the
rank goes on as its child. When the watcher ends, mpiexec ends all ranks.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import warnings

from handson import linux
from handson.cluster.nodes import current_node
from handson.errors import say
from handson.training import watchdog
from handson.training.options import Stopped, launcher_rank

LOOK = 0.5  # seconds between two looks at the rank
GRACE = 3  # seconds that a rank has to end by itself, and that other watchers have to report theirs, too
STARTING = 2  # seconds for mpiexec to start all ranks of a node


def name():
    """What this rank is called, before MPI starts."""
    return f"rank {launcher_rank()} on {current_node()}"


def watch():
    """Fork: the parent becomes the watcher of this rank and never returns, the child returns. Call it before MPI or CUDA start."""
    if watchdog.is_watched():
        return
    sys.stdout.flush()
    sys.stderr.flush()
    note = watchdog.Note()
    watcher_lives, held_by_watcher = os.pipe()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # libraries have threads, which can be forked
        rank = os.fork()
    if rank:
        os.close(watcher_lives)
        _supervise(rank, note)
    os.close(held_by_watcher)
    watchdog.watched_by(note)
    threading.Thread(target=_end_with_watcher, args=(watcher_lives,), daemon=True).start()


def _supervise(rank, note):
    """Wait for the end of the rank, the process `rank`, and end as it did. Does not return."""
    sent, begin, launcher, expected = {}, time.monotonic(), os.getppid(), _ranks_of_mpiexec_here()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # for sigtimedwait
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: _pass_on(number, rank, sent))
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, LOOK)
        pid, status = os.waitpid(rank, os.WNOHANG)
        if pid:
            _end_as(os.waitstatus_to_exitcode(status), sent)
        if expected and os.getppid() != launcher:  # mpiexec's own process on this node was killed, so nobody reads reports
            _kill(rank)
        if note.stalled():
            _report(watchdog.sentence(name(), note, rank))
            time.sleep(GRACE)
            _kill(rank)
        if expected and not note.read()[1] and time.monotonic() > begin + STARTING and _living_siblings() < expected:
            _report(f"{name()} waits in vain for MPI to start: another rank on this node has ended before; all ranks end")
            _kill(rank)
        if time.monotonic() > sent.get(signal.SIGINT, time.monotonic()) + GRACE:  # it may wait in a library, which does not hear Ctrl-C
            _kill(rank)


def _pass_on(number, rank, sent):
    """Send a signal that this process received to the rank. Only rank 0 speaks of Ctrl-C."""
    if number == signal.SIGINT and number not in sent and launcher_rank() == 0:
        say(Stopped())
    sent.setdefault(number, time.monotonic())
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(rank, number)


def _end_as(status, sent):
    """End with the status of the rank, and say so if it was killed; a negative status is that of a signal."""
    if status == -signal.SIGALRM:  # mpi.start sets this alarm, because the start of MPI has no limit of its own
        _report(f"{name()} has waited in vain for the other ranks to start")
    elif status < 0 and -status not in sent:
        _report(f"{name()} was killed by {signal.Signals(-status).name}; all ranks end")
    os._exit(status if status >= 0 else 128 - status)


def _kill(rank):
    os.kill(rank, signal.SIGKILL)
    os.waitpid(rank, 0)
    os._exit(1)


def _report(sentence):
    print(sentence, file=sys.stderr, flush=True)


def _ranks_of_mpiexec_here():
    """How many ranks MPICH's mpiexec starts on this node, if it has started this process itself; else 0."""
    try:
        with open(f"/proc/{os.getppid()}/comm") as file:
            return int(os.environ.get("MPI_LOCALNRANKS", 0)) if file.read().strip() == "hydra_pmi_proxy" else 0
    except (OSError, ValueError):
        return 0


def _living_siblings():
    """How many ranks of mpiexec live on this node, with this one."""
    states = [linux.stat(pid) for pid in linux.children(os.getppid())]
    return sum(state is not None and state[0] != b"Z" for state in states)


def _end_with_watcher(watcher_lives):
    os.read(watcher_lives, 1)  # returns when the watcher has ended, however it ended
    try:
        _report(f"{name()} was killed; all ranks end")
    finally:  # nobody may be left to read it, if mpiexec's own process on this node was killed
        os._exit(1)
