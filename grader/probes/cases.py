"""Run several works in the same ranks, because starting processes takes longer than most works.

A work is [function ("module:name"), arguments, case].
"""

import contextlib
import importlib
import os
import sys
import time
from pathlib import Path

from grader.sandbox import Limits
from grader.sandbox.rank import MissingInCase, reported_error

MARK = "\x1e"  # separates the outputs of `independent` works in a rank's output
PATIENCE = 0.5  # seconds that a rank whose work raised an error waits for errors on the other ranks


class Case(dict):
    """A case, the argument of probes and oracles."""

    def __missing__(self, key):
        raise MissingInCase(f"a case of the check has no {key!r}")


def run_all(rank, ranks, works):
    """Return the list of the results of ``function(rank, ranks, *arguments, case)`` for each of `works`."""
    return [_do(rank, ranks, *work) for work in works]


def run_share(rank, ranks, works):
    """Run every `ranks`-th work on this rank; each work is for one rank."""
    return [_do(0, 1, *work) for work in works[rank::ranks]]


def run_isolated(rank, ranks, works, limits=None):
    """Run independent works: the result of a work that raises an error on all ranks is None, and the remaining works
    still run.

    limits: the Limits of the ranks; with them, each result is [observations, None], or [None, the rank's report of its
    error].
    """
    found, folder = [], Path.cwd()
    for number, work in enumerate(works):
        if number:
            _mark()
        try:
            of_work, error = _do(rank, ranks, *work), None
        except (Exception, SystemExit) as raised:
            of_work, error = None, raised
            if not _on_all([folder / f"failed-{number}-{one}" for one in range(ranks)], rank):
                raise
        found.append([of_work, error and reported_error(error, Limits(**limits))] if limits else of_work)
    return found


def _on_all(signs, rank):
    """Return whether all ranks reach this point, at which each creates a file. If not, other ranks may still be in this
    work, and wait for this rank forever. The work's remaining messages must not reach the next one, so this creates a
    new process group."""
    signs[rank].touch()
    deadline = time.monotonic() + PATIENCE
    while not all(sign.exists() for sign in signs):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    dist = sys.modules.get("torch.distributed")  # not imported if the probe does not need it
    if len(signs) > 1 and dist and dist.is_initialized():
        dist.destroy_process_group()
    return True


def _do(rank, ranks, function, arguments, case):
    module, name = function.split(":")
    return getattr(importlib.import_module(module), name)(rank, ranks, *arguments, Case(case))


def _mark():
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):  # a student's code may have closed or replaced the stream
            stream.flush()
    with contextlib.suppress(OSError):
        os.write(1, MARK.encode())
