"""One worker, to compare several with: the student's script of 01_single_gpu, or, while that has gaps, the one of
02_multi_gpu on one GPU."""

import re
from pathlib import Path

from handson.cluster.follow import follow, submit
from handson.notebook import profiled_runs, runs

# folder, unit, and options for one worker
SCRIPTS = (("01_single_gpu", "single_gpu", ""), ("02_multi_gpu", "multi_gpu", " -g 0"))


def run(several, exercises, options=""):
    """The last Result of one worker under the conditions of the Result `several`; if there is none, a job makes it now.
    Raises JobFailed."""
    found = _like(several, exercises)
    if not found:
        folder, unit, for_one = _filled(exercises, several.track)
        follow(
            submit(
                folder, "-v", f"TRACK={several.track},OPTIONS={options}{for_one}", "-j", "oe", f"run_{unit}_training.sh"
            )
        )
        found = _like(several, exercises)
    return found[-1] if found else runs.single(several, exercises)  # which raises the sentence on what is missing


def profile(exercises, TRACK="pytorch", OPTIONS=""):
    """The Run of a profile of one worker, made now. Raises JobFailed, ResultError or ProfileError."""
    folder, unit, for_one = _filled(exercises, TRACK)
    job = profiled_runs.start(folder, f"run_{unit}_profile.sh", TRACK=TRACK, OPTIONS=f"{OPTIONS}{for_one}")
    return profiled_runs.of_job(folder, job)


def cores(run):
    """The number of cores that the virtual GPUs of a Result had or shared; None for real GPUs."""
    found = re.search(r"(\d+|one) core", run.device)
    return found and (1 if found[1] == "one" else int(found[1]))


def _like(several, exercises):
    return [other for other in runs.like(several, exercises) if other.workers == 1]


def _filled(exercises, track):
    """The folder, the unit and the options of the first script without gaps, else of the last."""
    for name, unit, for_one in SCRIPTS:
        folder = Path(exercises, name)
        script = folder / track / f"train_cifar_{unit}.py"
        if script.exists() and "raise NotImplementedError" not in script.read_text(errors="replace"):
            break
    return folder, unit, for_one
