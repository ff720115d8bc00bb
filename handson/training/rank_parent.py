"""A watcher for one rank. It reports what the rank itself cannot: that it was killed, is stopped, or makes no progress
any more.

mpiexec ends all ranks when one dies, and does not say which one it was. The watcher is the process that mpiexec (or
torchrun) started; the rank goes on as its child. When the watcher ends, mpiexec ends all ranks.
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
from handson.errors import Stopped, say
from handson.training import progress
from handson.training.launch import launcher_rank

LOOK = 0.5  # seconds between two looks at the rank
GRACE = 3  # seconds that a rank has to end by itself
# so many looks in a row find ranks missing, and the same number: mpiexec is not still starting them, they have ended
LOOKS = 6


def name():
    """What this rank is called, before MPI starts."""
    return f"rank {launcher_rank()} on {current_node()}"


def watch():
    """Fork: the parent becomes the watcher of this rank and never returns, the child returns. Call it before MPI or
    CUDA start."""
    if progress.is_watched():
        return
    sys.stdout.flush()
    sys.stderr.flush()
    note = progress.Note()
    watcher_lives, held_by_watcher = os.pipe()
    with warnings.catch_warnings():
        # libraries have threads, which can be forked
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        rank = os.fork()
    if rank:
        os.close(watcher_lives)
        _supervise(rank, note)
    os.close(held_by_watcher)
    progress.watched_by(note)
    threading.Thread(target=_end_with_watcher, args=(watcher_lives,), daemon=True).start()


def _supervise(rank, note):
    """Wait for the end of the rank, the process `rank`, and end as it did. Does not return."""
    sent, launched, missing, looks = {}, _Launched(), None, 0
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # for sigtimedwait
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: _pass_on(number, rank, sent))
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, LOOK)
        pid, status = os.waitpid(rank, os.WNOHANG)
        if pid:
            _end_as(os.waitstatus_to_exitcode(status), sent)
        # mpiexec's own process on this node was killed, so nobody reads reports
        if launched.here and os.getppid() != launched.proxy:
            _kill(rank)
        if note.stalled():
            _report(progress.sentence(name(), note, rank))
            time.sleep(progress.ANSWER)  # so long another watcher may need until it can report its rank, too
            _kill(rank)
        before, missing = missing, None if note.read()[1] else launched.missing()
        looks = looks + 1 if missing and missing == before else 0
        if looks == LOOKS:
            _report(f"{name()} waits in vain for MPI to start: {missing[0]} ended before; all ranks end")
            _kill(rank)
        # it may wait in a library, which does not hear Ctrl-C
        if time.monotonic() > sent.get(signal.SIGINT, time.monotonic()) + GRACE:
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


class _Launched:
    """The ranks that MPICH's mpiexec has started: `here` of them on this node, 0 if something else started this
    process."""

    def __init__(self):
        self.proxy = os.getppid()  # mpiexec's own process on this node, the parent of its ranks
        # it has a child for each node; other nodes see it if they are virtual ones
        self.mpiexec = linux.parent(self.proxy)
        while self.mpiexec > 1 and not linux.name(self.mpiexec).startswith("mpiexec"):
            self.mpiexec = linux.parent(self.mpiexec)
        self.here = int(os.environ.get("MPI_LOCALNRANKS", 0)) if linux.name(self.proxy) == "hydra_pmi_proxy" else 0
        several = int(os.environ.get("PMI_SIZE", 0)) > self.here > 0
        self.nodes = 2 if several and self.mpiexec > 1 else 0  # at least; 0 where it runs on another machine

    def missing(self):
        """Which ranks are not there, as the begin of a sentence, and how many are; or None. Before MPI starts, all
        ranks wait for each other."""
        if self.here and (living := _living_children(self.proxy)) < self.here:
            return "another rank on this node has", living
        if self.nodes and (living := _living_children(self.mpiexec)) < self.nodes:
            return "all ranks of another node have", living
        self.nodes = self.nodes and living
        return None


def _living_children(pid):
    """How many processes that `pid` has started live."""
    return sum(map(linux.runs, linux.children(pid)))


def _end_with_watcher(watcher_lives):
    os.read(watcher_lives, 1)  # returns when the watcher has ended, however it ended
    try:
        _report(f"{name()} was killed; all ranks end")
    finally:  # nobody may be left to read it, if mpiexec's own process on this node was killed
        os._exit(1)
