"""A student's runs: found in the results folders of the exercises, or started now. The notebooks compare their times,
and draw one of them."""

import re
from pathlib import Path

import numpy

from handson import compare, figures
from handson.cluster.follow import follow, submit
from handson.figures import SERIES
from handson.language import speak
from handson.training.identity import OTHER_SYSTEMS
from handson.training.results import ResultError, read

# folder, unit, and options for one worker
ONE_WORKER = (("01_single_gpu", "single_gpu", ""), ("02_multi_gpu", "multi_gpu", " -g 0"))


def of_job(folder, job):
    """Return the Result of a job that was submitted in `folder`. Raises ResultError."""
    return read(left_by(folder, job))


def left_by(folder, job):
    """Return the results folder of a job that was submitted in `folder`. Raises ResultError."""
    number = str(job).split(".")[0]
    outs = sorted(Path(folder, "results").glob(f"*_{number}"))
    if not outs:
        raise ResultError(f"job {job} has left no results in {folder}/results: look at its output, and submit it again")
    return outs[-1]


def find(exercises, **conditions):
    """Return the Results below `exercises`, the oldest first, whose fields have these values, such as
    unit="multi_gpu"."""
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
    """Return all Results that `run` may be compared with: those of the same track and under the same conditions.

    Scripts that train something else, and profiled runs, have other conditions. A run of the same unit must communicate
    in the same way as `run`; a run of another unit must communicate in the usual way. Runs of other systems are like
    each other.
    """
    conditions, way = compare.conditions(run), compare.communication(run)
    usual = ("",) * (len(way) - 1)  # whether workers share cores follows from their number
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
    """Return the last single-GPU Result that `run` may be compared with. Raises ResultError."""
    found = [other for other in like(run, exercises) if other.unit == "single_gpu"]
    if not found:
        words = ", ".join(filter(None, compare.conditions(run)))
        raise ResultError(
            f"the comparison needs a single-GPU run with {words}, track {run.track}: submit one in 01_single_gpu"
        )
    return found[-1]


def of_one_worker(several, exercises, options=""):
    """Return the last single-worker Result under the conditions of the Result `several`. If there is none, a job runs
    it now. Raises JobFailed."""
    if found := [other for other in like(several, exercises) if other.workers == 1]:
        return found[-1]
    folder, unit, for_one = script_of_one_worker(exercises, several.track)
    variables = {"TRACK": several.track, "OPTIONS": f"{options}{for_one}"}
    if "virtual" in several.device:  # Chainer's workers take virtual GPUs if there are fewer GPUs than workers
        variables["HANDSON_DEVICE"] = "cpu"
    follow(submit(folder, "-j", "oe", f"run_{unit}_training.sh", **variables))
    found = [other for other in like(several, exercises) if other.workers == 1]
    return found[-1] if found else single(several, exercises)  # raises the sentence on the missing run


def script_of_one_worker(exercises, track):
    """Return folder, unit and options of a script that can train with one worker: the script of 01_single_gpu, or,
    while it has gaps, the script of 02_multi_gpu on one GPU."""
    for name, unit, for_one in ONE_WORKER:
        folder = Path(exercises, name)
        script = folder / track / f"train_cifar_{unit}.py"
        if script.exists() and "raise NotImplementedError" not in script.read_text(errors="replace"):
            break
    return folder, unit, for_one


def folded(say=speak):
    """Return a function for `follow(job, say=folded())` that shortens the output: from the table of each training run
    it passes only the last line, with the name of the method, to `say`. All other lines are passed unchanged."""
    method, columns, last = "", [], None

    def say_folded(line):
        nonlocal method, columns, last
        if line.startswith("Method: "):
            method = line.removeprefix("Method: ")
        elif line.startswith("epoch  "):
            columns = re.split("  +", line.strip())
        elif columns and re.match(r"\d+ +-?[\d.]+ ", line):
            last = dict(zip(columns, line.split()))
        else:
            if last:
                say(f"{method}: {', '.join(f'{name} {value}' for name, value in last.items())}")
                last = None
            if line and not line.startswith("Throughput: "):  # a figure shows it
                say(line)

    return say_folded


def of_methods(folder):
    """Return the Results of a script with several methods in a folder: method -> [Result of each seed]."""
    found = {}
    for path in sorted(Path(folder).glob("*/result.json"), key=lambda path: path.stat().st_mtime_ns):
        found.setdefault(path.parent.name.rpartition("_")[0], []).append(read(path))
    return found


def all_of(runs):
    """Return all Results of a dictionary that `of_methods` has returned."""
    return [run for of_method in runs.values() for run in of_method]


def rate(run):
    """Return the images per second after the first epoch, which includes the warm-up and all that happens only once; in
    a run of a single epoch, the rate of that epoch."""
    epochs, seconds = _after_the_first_epoch(run, "elapsed_time")
    return run.images / run.epochs * epochs / seconds


def of_a_step(run, name="elapsed_time", batch=None):
    """Return the mean seconds per step of a run, without the first epoch if there are several. name="bytes": return the
    bytes that a node has sent instead. batch: the images of all ranks in a step, if ranks share images."""
    epochs, total = _after_the_first_epoch(run, name)
    return total / epochs / -(-run.images // run.epochs // (batch or run.workers * run.batchsize))


def _after_the_first_epoch(run, name):
    """Return the number of epochs after the first one, and how much the log's `name` grew in them; for a single epoch,
    of the whole run."""
    first, last = run.log[0] if len(run.log) > 1 else {"epoch": 0, name: 0}, run.log[-1]
    return last["epoch"] - first["epoch"], last[name] - first[name]


def show(run):
    """Draw a run: loss and accuracy after each epoch."""
    drawing, left, right = figures.axes(8, 2.8, columns=2)
    log, epochs = run.log, range(1, len(run.log) + 1)
    for axes, what in ((left, "loss"), (right, "accuracy")):
        for name, words, style in (
            (f"main/{what}", "training", SERIES[0]),
            (f"validation/main/{what}", "validation", SERIES[1]),
        ):
            axes.plot(epochs, [one.get(name) or numpy.nan for one in log], **style, label=words)
        axes.set(xlabel="epoch", ylabel=what, xticks=epochs, ylim=(0, None if what == "loss" else 1.03))
    left.legend(fontsize="small", edgecolor="none")
    last = ", ".join(f"{name} {value:.3g}" for name, value in log[-1].items() if "main" in name and value is not None)
    return figures.picture(drawing, f"Loss and accuracy against epochs; after the last one {last}.")
