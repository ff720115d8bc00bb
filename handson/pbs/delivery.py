"""The end of a job: its output is delivered, and its row in the database records how it ended.

The runner calls `finish`; if the runner was killed, the scheduler does. The runner first overwrites a file that already
has its blocks on the disk (`write_outcome`), so neither a full disk nor a kill between two steps can lose the
outcome.
"""

import contextlib
import json
import os
import re
import stat
import time
from pathlib import Path

from handson.pbs import store

OUTCOME_SIZE = 4096  # bytes
SUFFIX = {"o": "OU", "e": "ER"}
# PBS's JOB_EXEC_FAIL1, FAIL2, INITABT, KILL_WALLTIME
EXIT_NOT_STARTED, EXIT_LOST, EXIT_REBOOT, EXIT_WALLTIME = -1, -2, -4, -29


def prepare_outcome(directory):
    (directory / "outcome").write_bytes(b" " * OUTCOME_SIZE)


def write_outcome(directory, outcome):
    """Overwrite the prepared file in place, which needs no new block on the disk."""
    with contextlib.suppress(OSError), open(directory / "outcome", "r+b") as file:
        file.write(json.dumps(outcome).encode().ljust(OUTCOME_SIZE))
        file.flush()
        os.fsync(file.fileno())


def read_outcome(directory):
    """Return the outcome that the runner wrote before it ended, or None."""
    try:
        return json.loads((directory / "outcome").read_bytes())
    except (OSError, ValueError):
        return None


def spool_files(job, directory=None):
    """Return (the file that is written while the job runs, its destination, "o" or "e") for each stream of the job with
    its own file.

    With ``-k oed`` both paths are the same. directory: the job's directory, if it is known.
    """
    directory = directory or store.job_directory(job["id"])
    found = []
    for stream in {"oe": "o", "eo": "e"}.get(job["join"], "oe"):
        target = destination(job, stream)
        spooled = Path(target) if {stream, "d"} <= set(job["keep"]) else directory / f"spool.{stream}"
        found.append((spooled, target, stream))
    return found


def umask(job):
    """Return the job's umask from ``-W umask``; 077 if it is missing or not an octal number."""
    return int(job["umask"], 8) if re.fullmatch(r"[0-7]{1,4}", job["umask"]) else 0o077


def default_name(job, stream):
    """Return the default file name of a stream: ``name.o5``, or ``name.o28.1`` for sub-job 1 of array 28."""
    return f"{job['name']}.{stream}{job['seq']}" + (f".{job['index']}" if job["index"] is not None else "")


def destination(job, stream):
    """Return the path of a stream after the job's end: -o or -e, otherwise a file in the submission directory (with -k:
    in the home directory)."""
    path = job["output" if stream == "o" else "error"]
    if stream in job["keep"] and "d" not in job["keep"]:
        return os.path.join(job["home"], default_name(job, stream))
    if path is None:
        return os.path.join(job["workdir"], default_name(job, stream))
    if job["index"] is not None:
        path = path.replace("^array_index^", str(job["index"]))
    if path.endswith("/") or os.path.isdir(path):
        return os.path.join(path, f"{job['id']}.{job['server']}.{SUFFIX[stream]}")
    return path


def deliver(spooled, target):
    """Move a spooled file to `target`, completely or not at all. Raises OSError."""
    import shutil
    import tempfile

    try:
        mode = os.stat(target).st_mode
        if stat.S_ISCHR(mode) and os.path.samefile(target, os.devnull):
            os.unlink(spooled)
            return
        if not stat.S_ISREG(mode):
            raise OSError(0, "it is not an ordinary file")
    except FileNotFoundError:
        pass
    with open(spooled, "rb") as file:
        os.fsync(file.fileno())  # the output must be on the disk before the row that marks the job as ended
    try:
        os.rename(spooled, target)
        return
    except OSError:  # another file system; or missing permission, for which the next lines raise the error
        descriptor, aside = tempfile.mkstemp(prefix=".pbs-", dir=os.path.dirname(target))
    try:
        with open(descriptor, "wb") as copy, open(spooled, "rb") as source:
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
        os.rename(aside, target)
    except BaseException:
        os.unlink(aside)
        raise
    os.unlink(spooled)


def deliver_all(job, exit_status):
    """Deliver the job's streams. Streams that cannot be delivered stay in the directory ``undelivered``; return a
    sentence about each."""
    problems = []
    for spooled, target, stream in spool_files(job):
        try:
            if stream in job["remove"] and exit_status == 0:
                spooled.unlink(missing_ok=True)
            elif spooled.exists():  # otherwise it was delivered before the runner was killed
                if stat.S_ISREG(os.lstat(spooled).st_mode):
                    os.chmod(spooled, 0o666 & ~umask(job))
                if str(spooled) != target:
                    deliver(spooled, target)
                job.setdefault("delivered", {})[stream] = target
        except OSError as error:
            kept = store.home() / "undelivered" / f"{job['id']}.{job['server']}.{SUFFIX[stream]}"
            with contextlib.suppress(OSError):
                kept.parent.mkdir(mode=0o700, exist_ok=True)
                os.rename(spooled, kept)
            job.setdefault("delivered", {})[stream] = str(kept)
            problems.append(f"its output could not be written to {target} ({error.strerror}) and is kept in {kept}")
    return problems


def space_problem(directory):
    """Return [a sentence] if the disk with the job's output is full, otherwise []."""
    with contextlib.suppress(OSError):
        status = os.statvfs(directory)
        if status.f_blocks and (status.f_bavail if os.geteuid() else status.f_bfree) == 0:
            return [f"the disk that holds {directory} is full, so its output may be incomplete"]
    return []


def finish(job_id, outcome):
    """End a started job with `outcome`: {"exit_status", "how": "finished" | "failed" | ..., "notes": [...], "time",
    "used"}."""
    with store.reading() as db:
        job = store.get(db, job_id)
    if job is None or job["state"] == "F":
        return
    directory = store.job_directory(job_id)
    notes = outcome["notes"] + space_problem(directory) + deliver_all(job, outcome["exit_status"])
    delivered = job.get("delivered", {})
    with store.transaction() as db:
        job = store.get(db, job_id)
        job.update(
            state="F",
            obittime=outcome["time"],
            exit_status=outcome["exit_status"],
            used=outcome["used"],
            delivered=delivered,
        )
        how = "terminated" if job.get("delete") else outcome["how"]
        job["comment"] = "; ".join([f"{job.get('comment', '')} and {how}", *notes])
        store.put(db, job)
        end_array(db, job)
    remove_files(job)


def remove_files(job):
    """Remove the files of a started job from this package's directories."""
    import shutil

    shutil.rmtree(store.job_directory(job["id"]), ignore_errors=True)
    if job.get("tmpdir"):
        shutil.rmtree(job["tmpdir"], ignore_errors=True)


def delete_unstarted(db, job, comment):
    """End a job that has never run. (For sub-jobs, the caller calls `end_array` once at the end.)"""
    job.update(state="F", obittime=time.time(), comment=comment)
    store.put(db, job)


def end_array(db, job):
    """End an array after its last sub-job. Its exit status is 0 if all sub-jobs' statuses are 0."""
    if (
        job["index"] is None
        or db.execute("SELECT 1 FROM jobs WHERE seq = ? AND idx IS NOT NULL AND state != 'F'", [job["seq"]]).fetchone()
    ):
        return
    array = store.get(db, f"{job['seq']}[]")
    if array["state"] != "F":
        bad = [
            subjob
            for subjob in store.select(db, "seq = ? AND idx IS NOT NULL", job["seq"])
            if subjob.get("exit_status") != 0
        ]
        how = "terminated" if array.get("delete") else "failed" if bad else "finished"
        array.update(state="F", obittime=time.time(), exit_status=1 if bad else 0)
        array["comment"] = f"{array.get('comment') or 'Job Array'} and {how}"
        store.put(db, array)
