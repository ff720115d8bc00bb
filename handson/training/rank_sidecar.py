"""The process that watches one rank; `rank_watcher` starts it, and it ends with its rank. It imports no library beside
the standard one, so that it starts fast and can't be what fails."""

import os
import select
import signal
import sys
import time

from handson import linux
from handson.training import progress

LOOK = 0.5  # seconds between two looks at the rank
SOON = 0.005  # seconds between two looks at a rank that is just ending
GRACE = 3  # seconds that a rank has to end by itself
# so many looks in a row find ranks missing, and the same number: mpiexec is not still starting them, they have ended
LOOKS = 6


def main():
    """Watch the rank that the command line describes until it has ended."""
    program, name, role, *numbers = sys.argv[1:]
    pid, parent, signals, note = map(int, numbers)
    note, launched, end_by, missing, looks = progress.Note(note), _Launched(parent), None, None, 0
    while True:
        heard = _heard(signals)
        if not linux.runs(pid):
            break
        if heard == b"":  # it is ending
            signals = None
            continue
        # The rank hears Ctrl-C itself, but not while it waits in a library.
        if signal.SIGINT in heard and not end_by:
            end_by = time.monotonic() + GRACE
            if role == "first":
                _say_stopped(program)
        # mpiexec's own process on this node was killed, so nobody reads reports
        lost = launched.here and linux.parent(pid) != parent
        if stalled := note.stalled():
            _report(progress.sentence(name, note, pid))
            time.sleep(progress.ANSWER)  # so long another watcher may need until it can report its rank, too
        before, missing = missing, None if note.read()[1] else launched.missing()
        looks = looks + 1 if missing and missing == before else 0
        if looks == LOOKS:
            _report(f"{name} waits in vain for MPI to start: {missing[0]} ended before; all ranks end")
        if lost or stalled or looks >= LOOKS or end_by and time.monotonic() > end_by:
            os.kill(pid, signal.SIGKILL)
            role = "killed"
    if role in ("first", "other"):
        _report_end(name, linux.exit_code(pid))
    os._exit(0)


def _heard(signals):
    """The numbers of the signals that the rank has heard meanwhile, or b"" when it has ended, or is about to."""
    if signals is None:
        time.sleep(SOON)
        return b""
    return os.read(signals, 100) if select.select([signals], [], [], LOOK)[0] else b"\0"


def _say_stopped(program):
    from handson.errors import Stopped, say

    sys.argv[0] = program
    say(Stopped())


def _report_end(name, code):
    """Report how the rank ended if it was killed. code: None where its parent, who has asked first, reports it."""
    if code == -signal.SIGALRM:  # mpi.start sets this alarm, because the start of MPI has no limit of its own
        _report(f"{name} has waited in vain for the other ranks to start")
    # the latter are what users, batch systems and launchers send, in order to end a rank
    elif code and code < 0 and -code not in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        _report(f"{name} was killed by {signal.Signals(-code).name}; all ranks end")


def _report(sentence):
    print(sentence, file=sys.stderr, flush=True)


class _Launched:
    """The ranks that MPICH's mpiexec has started: `here` of them on this node, 0 if something else started the
    rank.

    proxy: mpiexec's own process on this node, the parent of its ranks.
    """

    def __init__(self, proxy):
        self.proxy = proxy
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
