"""The runs that a student has made: found in the results folders of the exercises. The notebooks compare them."""

from pathlib import Path

from handson import compare
from handson.training.identity import OTHER_SYSTEMS
from handson.training.results import ResultError, read


def of_job(folder, job):
    """The Result of a job that was submitted in `folder`. Raises ResultError."""
    return read(left_by(folder, job))


def left_by(folder, job):
    """The folder in which a job that was submitted in `folder` has left its results. Raises ResultError."""
    number = str(job).split(".")[0]
    outs = sorted(Path(folder, "results").glob(f"*_{number}"))
    if not outs:
        raise ResultError(f"job {job} has left no results in {folder}/results: look at its output, and submit it again")
    return outs[-1]


def find(exercises, **conditions):
    """The Results below `exercises`, the oldest first, whose fields have these values, such as unit="multi_gpu"; others
    are left out."""
    outs = sorted(Path(exercises).glob("*/results/*/result.json"), key=lambda path: path.stat().st_mtime)
    found = []
    for path in outs:
        try:
            run = read(path)
        except ResultError:
            continue  # an unfinished run, or a file of another kind
        if all(getattr(run, name) == value for name, value in conditions.items()):
            found.append(run)
    return found


def like(run, exercises):
    """All Results of the same track and under the same conditions as `run`: those that it may be compared with.

    Scripts that train something else, and runs that were profiled, have other conditions. Of its own unit, only runs
    that communicated in the same way are like `run`; those of other units need not, if they communicated in the usual
    way. Other systems' runs are like each other.
    """
    conditions, way = compare.conditions(run), compare.communication(run)
    usual = "", "", "", ""  # whether workers share cores follows from their number
    return [
        other
        for other in find(exercises, track=run.track)
        if compare.conditions(other) == conditions
        and (other.unit == OTHER_SYSTEMS) == (run.unit == OTHER_SYSTEMS)
        and (
            compare.communication(other) == way or other.unit != run.unit and compare.communication(other)[:-1] == usual
        )
    ]


def single(run, exercises):
    """The last single-GPU Result that `run` may be compared with. Raises ResultError."""
    found = [other for other in like(run, exercises) if other.unit == "single_gpu"]
    if not found:
        words = ", ".join(filter(None, compare.conditions(run)))
        raise ResultError(
            f"there is no single-GPU run with {words}, track {run.track}, to compare with: submit one in 01_single_gpu"
        )
    return found[-1]
