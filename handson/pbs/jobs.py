"""Query jobs of the embedded PBS from Python: `job`, `wait`. Notebooks and `handson.cluster.follow` use it."""

import contextlib
import time

from handson.pbs import delivery, scheduler, store
from handson.pbs.command import job_name
from handson.pbs.machine import server_name
from handson.pbs.pbs_errors import PBSError, unknown_job


def job(job_id):
    """Return the properties of a job as a dict. Raises PBSError if there is no job with this id.

    ``id``, ``name``, ``queue``; ``state`` (PBS's letter: Q, H, W, R, E, F, B); ``comment``; ``exit_status`` (None
    unless it ended by itself); ``output_path`` and ``error_path``: the current paths of its output, spool files while
    the job runs and the delivered files afterwards (None before the job starts; equal with ``-j oe``); ``session`` (a
    process id); ``start_time`` and ``end_time`` in seconds since the epoch, or None.
    """
    name = job_name(str(job_id), server_name())
    with store.reading() as db:
        found = store.get(db, name)
    if found is None:
        raise unknown_job(f"{name}.{server_name()}")
    paths = {}
    if found["state"] == "F":
        paths = found.get("delivered", {})
    elif found["state"] in "RE":
        paths = {stream: str(path) for path, _, stream in delivery.spool_files(found)}
    return {
        "id": f"{found['id']}.{found['server']}",
        "name": found["name"],
        "queue": found["queue"],
        "state": found["state"],
        "comment": found.get("comment", ""),
        "exit_status": found.get("exit_status"),
        "output_path": paths.get("o") or paths.get("e"),
        "error_path": paths.get("e") or paths.get("o"),
        "session": found.get("session"),
        "start_time": found.get("stime"),
        "end_time": found.get("obittime"),
    }


def wait(job_id, timeout=None):
    """Wait until the job has ended, at most `timeout` seconds, and return the result of `job`. Raises PBSError after
    the timeout."""
    began = time.monotonic()
    looked_after, pause = began, 0.02
    while (now := job(job_id))["state"] != "F":
        if timeout is not None and time.monotonic() - began > timeout:
            raise PBSError(
                f"job {now['id']} has not ended after {timeout} seconds (state {now['state']}:"
                f" {now['comment'] or 'no comment'})"
            )
        time.sleep(pause)
        pause = min(0.2, pause * 1.2)
        if time.monotonic() - looked_after > 2:
            with contextlib.suppress(OSError):
                scheduler.ensure()
            looked_after = time.monotonic()
    return now
