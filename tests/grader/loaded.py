"""The libraries that scripts need, loaded once for all tests: a process has them and forks servers, as one does for the
engines of a grader. To load them is half of the CPU time in which a small class is graded.

Usage: `python tests/grader/loaded.py FOLDER grade ...`, which is `python -m grader grade ...` with such servers.
"""

import fcntl
import runpy
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil

from grader.instructors.grade import ipp_cluster
from grader.probes import FOR_SCRIPTS
from grader.sandbox import forkserver

LIBRARIES = (*FOR_SCRIPTS, "tests.grader.misbehaving")


@contextmanager
def in_folder(folder):
    """In a `with`: a process forks servers for all that can open `folder`. If there are several processes of
    pytest, the first one starts it."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / LIBRARIES[-1]).exists():
            starting = None
        else:
            starting = forkserver.started(folder, LIBRARIES)
            starting.__enter__()
            (folder / FOR_SCRIPTS[-1]).symlink_to(LIBRARIES[-1])  # where engines look for it
    try:
        yield folder
    finally:
        if starting:
            starting.__exit__(None, None, None)


def process_of(server):
    """The process of a box's server, which may be forked from another one."""
    [rank] = server.run("tests.grader.misbehaving:above").ranks
    return psutil.Process(rank.observations[-1])


def borrow(folder, put=setattr):
    """Let the graders of this process use the process that listens in `folder`. put: as setattr."""

    @contextmanager
    def started(place, libraries):
        if libraries == FOR_SCRIPTS:
            Path(place, libraries[-1]).symlink_to(Path(folder, libraries[-1]))
            yield
        else:
            with forkserver.started(place, libraries):
                yield

    put(ipp_cluster, "forkserver", SimpleNamespace(started=started))


if __name__ == "__main__":
    borrow(sys.argv.pop(1))
    runpy.run_module("grader", run_name="__main__", alter_sys=True)
