"""The resources of a profiling job. Job scripts for profiles have no requests of their own, but use those of the
training script.

Notebooks pass these to qsub. A job that was submitted without them ends before it records anything, with the command to
submit instead.
"""

import shlex
from pathlib import Path

from handson.cluster.follow import JobFailed
from handson.cluster.nodes import job_processes
from handson.pbs import directives, resources
from handson.pbs.pbs_errors import PBSError


def of_training(folder, job_script):
    """Return (the job script of the training that `job_script` in `folder` profiles, its requests as words for qsub).

    There are no words if `job_script` has its own requests, or if there is no such training. Raises JobFailed for
    requests that cannot be read.
    """
    profile = Path(folder, job_script)
    training = profile.with_name(profile.name.replace("_profile", "_training"))
    if training == profile or not profile.exists() or _in(profile) or not training.exists():
        return training, []
    return training, [word for request in _in(training) for word in request]


def lacking(folder, environment):
    """Return a sentence on why this batch job cannot profile a training run in `folder`, with the command to submit
    instead, or "" if it can."""
    job_script, processes = f"run_{environment.get('PBS_JOBNAME')}.sh", job_processes()
    training, words = of_training(folder, job_script)
    if not words or processes is None:
        return ""
    try:
        select = next((word.removeprefix("select=") for word in words if word.startswith("select=")), "...")
        asked = sum(chunk["count"] * chunk.get("mpiprocs", 1) for chunk in resources.parse_select(select))
    except PBSError:
        return (
            f"{job_script} has no #PBS lines for resources, and uses those of {training.name}: first fill its gaps"
            " (PUT YOUR CODE)"
        )
    if asked <= processes:
        return ""
    return (
        f"{job_script} has no #PBS lines for resources, so this job got {processes} process{'es' * (processes > 1)},"
        f" and {training.name} asks for {asked}: copy those lines, or submit it with them: qsub {shlex.join(words)} -j"
        f" oe {job_script}"
    )


def _in(script):
    try:
        return directives.requests(script.read_bytes())
    except PBSError as error:
        raise JobFailed(f"{script} has a {str(error).strip()}: close its quotation marks") from None
