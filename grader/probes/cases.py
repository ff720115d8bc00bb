"""Several works in the same ranks: a process costs more than most of them do. A work is [function ("module:name"), arguments, case]."""

import contextlib
import importlib
import os
import sys

MARK = "\x1e"  # in what a rank prints: here the next work begins


def each(rank, ranks, works):
    """A list of what ``function(rank, ranks, *arguments, case)`` gives for each of `works`."""
    return [_do(rank, ranks, work, number) for number, work in enumerate(works)]


def independent(rank, ranks, works):
    """As `each`, for works that have nothing to do with each other: where there is one rank, None for those that raise something."""
    if ranks > 1:  # others might wait for a rank that went on
        return each(rank, ranks, works)
    found = []
    for number, work in enumerate(works):
        try:
            found.append(_do(rank, ranks, work, number))
        except (Exception, SystemExit):
            found.append(None)
    return found


def _do(rank, ranks, work, number):
    if number:
        with contextlib.suppress(OSError, ValueError):  # closed by the work before
            sys.stdout.flush()
            os.write(sys.__stdout__.fileno(), MARK.encode())
    function, arguments, case = work
    module, name = function.split(":")
    return getattr(importlib.import_module(module), name)(rank, ranks, *arguments, case)
