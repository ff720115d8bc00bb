"""Remove the files that killed ranks of MPI have left: shared memory (2 MB per rank) and mpiexec's descriptions of the
machine. A training run calls it at its start."""

import contextlib
import os
import tempfile
import time
from pathlib import Path

from handson import linux

YOUNG = 5  # seconds in which ranks may not have mapped a new file yet
SHARED_MEMORY, TEMPORARY = Path("/dev/shm"), Path("/tmp")
HYDRA = "hydra_hwloc_xmlfile_*"


def remove():
    """Remove this user's MPICH files that no process uses."""
    shared = _old(SHARED_MEMORY, "mpich_shm_*")
    used = {name for process in (linux.pids_of_user() if shared else ()) for name in _mapped(process)}
    # mpiexec writes them to /tmp, even if a job has another temporary folder
    described = [path for folder in {TEMPORARY, Path(tempfile.gettempdir())} for path in _old(folder, HYDRA)]
    oldest = min(_starts_of_mpiexec(), default=time.time()) if described else 0
    for path in (*shared, *described):
        with contextlib.suppress(OSError):  # another rank has removed it
            if path.name not in used and (path in shared or path.stat().st_mtime < oldest):
                path.unlink()


def _old(folder, pattern):
    """Return this user's files in a folder that are older than YOUNG seconds."""
    found = []
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):  # it was removed in the meantime
            status = path.lstat()
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > YOUNG:
                found.append(path)
    return found


def _mapped(process):
    """Return the names of the MPICH files that a process has mapped. A process that cannot be inspected is not a rank
    of this user, so it has none."""
    # " (deleted)" may follow a path
    return {Path(path.split()[0]).name for path in linux.mapped_files("/mpich_shm_", process)}


def _starts_of_mpiexec():
    """Return when each mpiexec of this user was started, in seconds since 1970."""
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for process in linux.pids_of_user():
        if linux.name(process).startswith(("mpiexec", "hydra_")) and (ticks := linux.start_time(process)):
            yield boot + ticks / linux.TICKS
