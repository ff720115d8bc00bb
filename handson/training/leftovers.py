"""Removes what killed ranks of MPI left behind: shared memory, 2 MB a rank, and mpiexec's descriptions of the machine.
A training calls it at its start."""

import contextlib
import os
import tempfile
import time
from pathlib import Path

from handson import linux

YOUNG = 5  # seconds in which a new file may not be in its ranks' memory yet
SHARED_MEMORY, TEMPORARY = Path("/dev/shm"), Path("/tmp")
HYDRA = "hydra_hwloc_xmlfile_*"


def remove():
    """Remove this user's files of MPICH that no process uses any more."""
    shared = _old(SHARED_MEMORY, "mpich_shm_*")
    used = {name for process in (linux.pids_of_user() if shared else ()) for name in _mapped(process)}
    # mpiexec has them in /tmp, wherever a job's temporary folder is
    described = [path for folder in {TEMPORARY, Path(tempfile.gettempdir())} for path in _old(folder, HYDRA)]
    oldest = min(_starts_of_mpiexec(), default=time.time()) if described else 0
    for path in (*shared, *described):
        with contextlib.suppress(OSError):  # another rank has removed it
            if path.name not in used and (path in shared or path.stat().st_mtime < oldest):
                path.unlink()


def _old(folder, pattern):
    """This user's files in a folder that are no longer YOUNG."""
    found = []
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):  # it has gone meanwhile
            status = path.lstat()
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > YOUNG:
                found.append(path)
    return found


def _mapped(process):
    """The names of the files of MPICH that a process has in its memory. A process that can't be looked into keeps none
    from being removed: it is no rank of this user's."""
    # " (deleted)" may follow a path
    return {Path(path.split()[0]).name for path in linux.mapped_files("/mpich_shm_", process)}


def _starts_of_mpiexec():
    """When each mpiexec of this user was started, in seconds since 1970."""
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for process in linux.pids_of_user():
        if linux.name(process).startswith(("mpiexec", "hydra_")) and (ticks := linux.start_time(process)):
            yield boot + ticks / linux.TICKS
