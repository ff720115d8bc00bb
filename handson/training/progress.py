"""Detect that a rank makes no progress, and report its line: ranks that call different collectives would deadlock.

A rank calls `progress` after each step. Another process watches it (see `rank_watcher`; Chainer's workers are watched
by the process that started them), because a rank that is stopped, or that waits in a library, cannot report this
itself. The two processes share a `Note`.
"""

import faulthandler
import os
import signal
import struct
import tempfile
import time

from handson import linux

LIMIT = 120  # seconds without a finished step, unless --patience says otherwise
ANSWER = 10  # seconds in which a rank must write its stack, on a busy machine
SIGNAL = signal.SIGUSR2  # asks a rank for its stack
# a Note begins with these: limit in seconds, time.monotonic() of the last progress, whether the ranks have met
FORMAT = struct.Struct("dd?")
# besides numbers of signals, a rank sends its watcher one of these: nothing happens; it ends as Python programs do; it
# has printed why it ends (this number plus its status)
LISTENING, ENDING, EXPLAINED = 0, 127, 128
limit = LIMIT  # this run ends after so many seconds without a finished step; 0 means no limit
_mine = _watcher = None  # see watched_by


class Note:
    """A file without a name that a rank writes and its watcher reads: the rank's limit, the time of its last progress,
    and, on request, its stack.

    descriptor: the file descriptor of an inherited Note, or None to create a Note.
    """

    def __init__(self, descriptor=None):
        self.descriptor = descriptor
        if descriptor is None:
            with tempfile.TemporaryFile() as file:
                self.descriptor = os.dup(file.fileno())  # it stays open as long as the rank lives
            self.write(0, 0, met=False)

    def close(self):
        os.close(self.descriptor)

    def write(self, limit, moment, met=True):
        os.pwrite(self.descriptor, FORMAT.pack(limit, moment, met), 0)

    def read(self):
        """Return (limit in seconds, 0 for none; time of the last progress, 0 before the rank records any; whether the
        rank has communicated with the others)."""
        return FORMAT.unpack(os.pread(self.descriptor, FORMAT.size, 0))

    def stalled(self):
        """Return whether the rank has made no progress for longer than its limit."""
        limit, last, _ = self.read()
        return bool(limit) and time.monotonic() > last + limit

    def where(self, pid):
        """Return the place at which process `pid` waits, as the rest of a sentence: "it waits in train.py, line 61, in
        all_reduce"."""
        if (linux.stat(pid) or [b"X"])[0] in b"Tt":
            return f"it is stopped (`kill -CONT {pid}` would let it continue)"
        os.truncate(self.descriptor, FORMAT.size)
        if self.read()[1]:
            os.kill(pid, SIGNAL)
        end, before, stack = time.monotonic() + ANSWER, None, b""
        while time.monotonic() < end and not (stack and stack == before):
            time.sleep(0.05)
            before, stack = stack, os.pread(self.descriptor, 2**20, FORMAT.size).lstrip(b"\0")
        from handson.training import dump_stacks  # regular expressions would make each watcher start later

        return dump_stacks.words(stack.decode(errors="replace"))


def watched_by(note, watcher=None):
    """Record the progress of this process for its watcher, and write its stack on request.

    watcher: the descriptor of a pipe that the other process reads, or None if it does not need reports.
    """
    global _mine, _watcher
    _mine, _watcher = note, watcher
    os.lseek(note.descriptor, FORMAT.size, os.SEEK_SET)
    faulthandler.register(SIGNAL, note.descriptor, all_threads=False)


def has_watcher():
    """Return whether this process is a rank with a watcher, which may have been killed."""
    return _watcher is not None


def is_watched():
    """Return whether another, living process watches this one. It then reports events of this process, such as
    Ctrl-C."""
    return tell(LISTENING)


def tell(what):
    """Send the watcher a message (see above). Return whether the watcher has received it."""
    try:
        return _watcher is not None and os.write(_watcher, bytes([what])) > 0
    except OSError:  # it was killed
        return False


def tell_end(status):
    """Inform the watcher that this rank has printed why it ends, with `status`. Return whether the watcher has received
    it."""
    return tell(EXPLAINED + min(status % 256, 100))  # the system keeps the status this way: sys.exit(-1) becomes 255


def ends_by_watcher():
    """Return whether the watcher of a failing rank can end all other ranks, because MPICH's mpiexec has given it a
    way."""
    return {"MPI_LOCALNRANKS", "PMI_FD"} <= os.environ.keys()


def begin(patience, met=True):
    """Require progress of this process every `patience` seconds from now on. With 0, there is no limit. met: whether
    the rank has already communicated with the other ranks, if there are any."""
    global limit
    limit = patience
    progress(met)


def progress(met=True):
    """Record the end of a step, or of a batch of an evaluation."""
    if _mine:
        _mine.write(limit, time.monotonic(), met)


def sentence(name, note, pid):
    """Return the message about a rank that has stalled."""
    return f"{name} has finished no step for {note.read()[0]:g} s: {note.where(pid)}"
