"""What a rank waits for. The rank notes it in memory that it shares with the watcher, because a rank that hangs does
not answer."""

import json
import mmap
import re

SIZE = 1024  # bytes
SEND, RECEIVE = "send", "receive"
NAME = re.compile(r"[a-z_]{1,40}")  # of a collective
_mine = None  # the memory of this rank


def shared_memory():
    """Return memory for the note of one rank, which is still to be forked."""
    return mmap.mmap(-1, SIZE)


def use(memory):
    """Make `note` write into this memory. Called in the rank."""
    global _mine
    _mine = memory


def note(*what):
    """Note what this rank starts to wait for, as `read` returns it; without arguments, that it waits no more."""
    text = json.dumps(what).encode()
    if _mine and len(text) < SIZE:
        _mine[: len(text) + 1] = text + b"\0"


def read(memory):
    """Return the last note: [what, the other rank, expected], or None. A student's code can write anything there.

    what: SEND, RECEIVE or the name of a collective. The other rank is the receiver, the sender or the root, or None.
    expected: the ranks from which this rank has started to receive other messages.
    """
    try:
        what, other, expected = json.loads(memory[:].partition(b"\0")[0])
        is_note = NAME.fullmatch(what) and all(map(_is_rank, [other, *expected]))
    except (ValueError, TypeError):
        return None
    return [what, other, list(expected)] if is_note else None


def _is_rank(thing):
    return thing is None or type(thing) is int and 0 <= thing < 1000
