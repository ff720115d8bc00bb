"""Follow a batch job: show its output while it runs, and return when it has ended. Works with the embedded PBS and with a real one."""

import subprocess
import time
from pathlib import Path

from handson.errors import OneSentence
from handson.pbs import jobs
from handson.pbs.errors import PBSError

LIMIT = 3600  # seconds to wait for a job, unless told


class JobFailed(OneSentence, RuntimeError):
    """Which job did not end well, and where to look."""

    status = 1


def submit(folder, *arguments):
    """Run ``qsub arguments`` in `folder`; returns the job's id. Raises JobFailed with qsub's own words."""
    done = subprocess.run(["qsub", *arguments], cwd=folder, text=True, capture_output=True, timeout=60)
    if done.returncode:
        raise JobFailed(f"qsub refused {' '.join(arguments)} in {folder}: {done.stderr.strip()}")
    return done.stdout.split()[-1]


def follow(job_id, output, say=print, limit=LIMIT):
    """Say each line of the job's output as it comes, until the job has ended; `limit` in seconds.

    output: where the scheduler delivers the output in the end. With the embedded PBS the output is shown as it is written; with
    another one, when it is delivered. Raises JobFailed if the job fails or takes too long.
    """
    output, shown, deadline = Path(output), 0, time.monotonic() + limit
    while True:
        state, status, live = _look(job_id)
        text = _read(live if state != "F" and live else output)
        complete = text if state == "F" else text[: text.rfind("\n") + 1]
        for line in complete[shown:].splitlines():
            say(line)
        shown = max(shown, len(complete))
        if state == "F" and (output.exists() or status):
            break
        if time.monotonic() > deadline:
            raise JobFailed(f"job {job_id} has not ended after {limit} seconds; look at it with qstat, or end it with qdel {job_id}")
        time.sleep(0.1)
    if status:
        raise JobFailed(f"job {job_id} ended with status {status}; its output is in {output}")


def _look(job_id):
    """State, exit status and the path of the growing output of a job; a real PBS only tells whether it still knows the job."""
    try:
        job = jobs.job(job_id)
        return job["state"], job["exit_status"], job["output_path"]
    except PBSError:
        known = subprocess.run(["qstat", job_id], capture_output=True, timeout=60).returncode == 0
        return ("R" if known else "F"), None, None


def _read(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
