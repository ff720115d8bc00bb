"""Notices that a rank makes no progress, and where it stands: ranks that disagree about a collective would wait for
each other for ever.

A rank calls `progress` after each step. What watches over it is another process (mpiexec's rank has a `rank_parent`,
workers have the process that started them), as a rank that is stopped, or waits in a library, cannot report it. The two
share a `Note`.
"""

import faulthandler
import os
import signal
import struct
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from handson import linux
from handson.files import COURSE
from handson.training import dump_stacks

LIMIT = 120  # seconds without a finished step, unless --patience says otherwise
ANSWER = 10  # seconds in which a rank must write its stack, on a busy machine
SIGNAL = signal.SIGUSR2  # asks a rank for its stack
COLLECTIVES = (*dump_stacks.COLLECTIVES, "handson/chainer/evaluators.py", "handson/training/all_ranks.py")
# what the file of a Note begins with: limit in seconds, time.monotonic() of the last progress
FORMAT = struct.Struct("dd")
limit = LIMIT  # of this run, in seconds; 0: none
_mine = None  # the Note of this process, if another one watches over it


class Note:
    """A file that a rank writes and its watcher reads: the rank's limit, the moment of its last progress, and its stack
    when it is asked.

    path: where the file is made, for processes that get the Note by pickle; None: it has no name, for forked ones.
    """

    def __init__(self, path=None):
        self.path = path
        self.file = tempfile.TemporaryFile(buffering=0) if path is None else open(path, "w+b", buffering=0)
        os.pwrite(self.file.fileno(), FORMAT.pack(0, 0), 0)

    def close(self):
        self.file.close()

    def __getstate__(self):
        return self.path

    def __setstate__(self, path):
        self.path, self.file = path, open(path, "r+b", buffering=0)

    def write(self, limit, moment):
        os.pwrite(self.file.fileno(), FORMAT.pack(limit, moment), 0)

    def read(self):
        """(limit in seconds, 0 for none; the moment of the last progress, 0 before the rank begins to note it)"""
        return FORMAT.unpack(os.pread(self.file.fileno(), FORMAT.size, 0))

    def stalled(self):
        """Whether the rank has made no progress for longer than its limit."""
        limit, last = self.read()
        return bool(limit) and time.monotonic() > last + limit

    def where(self, pid):
        """Where the rank that is process `pid` stands, as the rest of a sentence: "it waits in train.py, line 61, in
        all_reduce"."""
        if (linux.stat(pid) or [b"X"])[0] in b"Tt":
            return f"it is stopped (`kill -CONT {pid}` would let it go on)"
        os.truncate(self.file.fileno(), FORMAT.size)
        if self.read()[1]:
            os.kill(pid, SIGNAL)
        end, before, stack = time.monotonic() + ANSWER, None, b""
        while time.monotonic() < end and not (stack and stack == before):
            time.sleep(0.05)
            before, stack = stack, os.pread(self.file.fileno(), 2**20, FORMAT.size).lstrip(b"\0")
        return _words(stack.decode(errors="replace"))


def watched_by(note):
    """Have this process note its progress for the one that watches over it, and write its stack when that one asks."""
    global _mine
    _mine = note
    os.lseek(note.file.fileno(), FORMAT.size, os.SEEK_SET)
    faulthandler.register(SIGNAL, note.file, all_threads=False)


def is_watched():
    """Whether another process watches over this one. It then reports what befalls this one, such as Ctrl-C."""
    return _mine is not None


def begin(patience):
    """From now on, this process must make progress every `patience` seconds; 0: it need not."""
    global limit
    limit = patience
    progress()


def progress():
    """A step has ended, or a batch of an evaluation."""
    if _mine:
        _mine.write(limit, time.monotonic())


def sentence(name, note, pid):
    """What to print about a rank that has stalled."""
    return f"{name} has finished no step for {note.read()[0]:g} s: {note.where(pid)}"


def _words(stack):
    """Where the stack of a rank says that it is."""
    if not stack:
        return "it does not answer"
    waiting, own = dump_stacks.where(stack, _is_own, COLLECTIVES)
    if own is None:
        return (
            "it has come to the end of its script, and waits for the other ranks"
            if waiting
            else "it is not in its script"
        )
    file, line = own
    return f"it {'waits' if waiting else 'is'} in {os.path.basename(file)}, line {line}" + f", in {waiting}" * bool(
        waiting
    )


def _is_own(file):
    """Whether a file is the run's own code, and none of Python's, of a library's or of the course's package."""
    others = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sys.prefix, COURSE / "handson"
    return not file.startswith("<") and not any(Path(file).absolute().is_relative_to(other) for other in others)
