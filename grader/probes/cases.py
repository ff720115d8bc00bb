"""Runs several works in the same ranks, since starting processes takes longer than most works do.

A work is [function ("module:name"), arguments, case].
"""

import contextlib
import importlib
import os
import sys

from grader.box.rank import Lacking

MARK = "\x1e"  # separates in a rank's output what the `independent` works print


class Case(dict):
    """A case, as probes and oracles get it."""

    def __missing__(self, key):
        raise Lacking(f"a case of the check has no {key!r}")


def each(rank, ranks, works):
    """A list of what ``function(rank, ranks, *arguments, case)`` returns for each of `works`."""
    return [_do(rank, ranks, *work) for work in works]


def independent(rank, ranks, works):
    """As `each`, for works that don't depend on each other: with one rank, a work that raises an error gives None, and the rest still run."""
    found = []
    for number, work in enumerate(works):
        if number:
            _mark()
        try:
            found.append(_do(rank, ranks, *work))
        except (Exception, SystemExit):
            if ranks > 1:  # the other ranks may still be in this work, and would wait for this one for ever
                raise
            found.append(None)
    return found


def _do(rank, ranks, function, arguments, case):
    module, name = function.split(":")
    return getattr(importlib.import_module(module), name)(rank, ranks, *arguments, Case(case))


def _mark():
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):  # a student's code may have closed or replaced the stream
            stream.flush()
    with contextlib.suppress(OSError):
        os.write(1, MARK.encode())
