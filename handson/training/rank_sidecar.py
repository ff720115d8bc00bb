"""The process that watches one rank. `rank_watcher` starts it, and it ends with its rank. It imports only the standard
library, so that it starts fast and rarely fails."""

import contextlib
import os
import select
import signal
import sys
import time

from handson import linux
from handson.language import speak
from handson.training import progress

LOOK = 0.5  # seconds between two checks of the rank
SOON = 0.005  # seconds between two checks of a rank that is ending
GRACE = 3  # seconds that a rank has to end by itself
# after this many checks with the same missing ranks, these have ended: mpiexec is not still starting them
LOOKS = 6
# users, batch systems and launchers send these to end a rank, so they need no report
ASKED_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def main():
    """Watch the rank that the command line describes until it has ended."""
    *words, pid, parent, pipe, note = sys.argv[1:]
    rank = _Rank(*words, int(pid), int(parent), int(pipe), progress.Note(int(note)))
    with contextlib.suppress(BrokenPipeError):  # nobody reads the reports any more
        rank.watch()
    os._exit(0)


class _Rank:
    """The rank with process number `pid`. told: the messages that it has written into its pipe, and events that need no
    report."""

    def __init__(self, program, name, role, pid, parent, pipe, note):
        self.program, self.name, self.role = program, name, role
        self.pid, self.parent, self.pipe, self.note = pid, parent, pipe, note
        self.told, self.end_by, self.missing, self.looks = set(), None, None, 0
        self.launched = _Launched(parent)

    def watch(self):
        while linux.runs(self.pid):
            self.listen(LOOK)
            if self.pipe is None:
                time.sleep(SOON)
            elif self.must_end():
                self.told.add(progress.EXPLAINED + 1)
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(self.pid, signal.SIGKILL)
        self.listen(0)
        if self.role != "worker":
            self.report_end(linux.exit_code(self.pid))

    def listen(self, seconds):
        """Wait at most `seconds` for messages of the rank; its pipe closes when it ends."""
        if self.pipe is None or not select.select([self.pipe], [], [], seconds)[0]:
            return
        told = os.read(self.pipe, 4096)
        self.told |= set(told)
        if not told:
            self.pipe = None
        # The rank handles Ctrl-C itself, but not while it waits in a library. Only rank 0's watcher reports it.
        if signal.SIGINT in self.told and not self.end_by:
            self.end_by = time.monotonic() + GRACE
            if self.role == "first":
                _say_stopped(self.program)

    def must_end(self):
        """Return whether the rank must be killed, and report why, if anybody can read it."""
        if self.end_by and time.monotonic() > self.end_by:
            return True
        if signal.SIGALRM in self.told:  # mpi.start sets this alarm, because the start of MPI has no limit of its own
            _report(f"{self.name} has waited too long for the other ranks to start; all ranks end")
            return True
        if self.launched.here and linux.parent(self.pid) != self.parent:
            return True  # mpiexec's own process on this node was killed
        if self.note.stalled():
            _report(progress.sentence(self.name, self.note, self.pid))
            time.sleep(progress.ANSWER)  # another watcher may need this long to report its rank, too
            return True
        before, self.missing = self.missing, None if self.note.read()[2] else self.launched.missing()
        self.looks = self.looks + 1 if self.missing and self.missing == before else 0
        if self.looks == LOOKS:
            _report(
                f"{self.name} waits for ranks that cannot start, since {self.missing[0]} ended before; all ranks end"
            )
        return self.looks >= LOOKS

    def report_end(self, code):
        """Report how the rank ended, unless it has done so itself, and end the remaining ranks if it has failed.

        code: the status, or the negative number of a signal, or None if the rank's parent has already read it.
        """
        explained = max(self.told, default=0) - progress.EXPLAINED  # its status, if not negative
        if code is None and explained >= 0:
            code = explained
        if code is None:
            expected = progress.ENDING in self.told or signal.sigpending() & ASKED_TO_END
            code, how = (0, "") if expected else (1, "has died")
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with status {code}"
        if code and -code not in ASKED_TO_END and explained < 0 and signal.SIGINT not in self.told:
            _report(f"{self.name} {how}; all ranks end")
        if signal.SIGINT in self.told and self.role == "other":
            time.sleep(GRACE)  # the watcher of rank 0 reports Ctrl-C, and ends all ranks
        if code and progress.ends_by_watcher():
            _wait_until_read()
            # like the rank's MPI_Abort: mpiexec ignores the failure of a rank that has not called MPI
            os.write(int(os.environ["PMI_FD"]), b"cmd=abort exitcode=%d\n" % (code if code > 0 else 128 - code))


def _say_stopped(program):
    from handson.errors import Stopped, say

    sys.argv[0] = program
    say(Stopped())


def _wait_until_read():
    """Wait until mpiexec has read the output of the rank and of this process, because it reads nothing after an
    abort."""
    import fcntl
    import termios

    end = time.monotonic() + GRACE
    with contextlib.suppress(OSError):  # an error: it is not a pipe to mpiexec
        while time.monotonic() < end and any(any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))) for pipe in (2, 1)):
            time.sleep(SOON)


def _report(sentence):
    speak(sentence, file=sys.stderr, flush=True)


class _Launched:
    """The ranks that MPICH's mpiexec has started: `here` of them on this node, 0 if another program started the rank.

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
        self.nodes = 2 if several and self.mpiexec > 1 else 0  # the least number; 0 if mpiexec runs elsewhere

    def missing(self):
        """Return which ranks are missing, as the start of a sentence, and their number; or None. While ranks start,
        they wait for each other."""
        if self.here and (living := _living_children(self.proxy)) < self.here:
            return "another rank on this node has", living
        if self.nodes and (living := _living_children(self.mpiexec)) < self.nodes:
            return "all ranks of another node have", living
        self.nodes = self.nodes and living
        return None


def _living_children(pid):
    """Return how many live processes `pid` has started."""
    return sum(map(linux.runs, linux.children(pid)))
