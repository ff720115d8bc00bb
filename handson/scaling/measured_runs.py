"""The measured runs to which a prediction is fitted: the data of their result.json, profile or measured network, and a
check that they fit together."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy

from handson import compare
from handson.errors import OneSentence
from handson.scaling import message_times
from handson.training import results

# the conditions, of compare.CONDITIONS, on which the step time depends
SAME = ("data set", "image size", "network to train", "kind of GPU", "script", "recording", "counting of memory")
ONE = "submit run_single_gpu_training.sh in exercises/01_single_gpu"
MORE = "submit run_multi_gpu_training.sh in exercises/02_multi_gpu"
REHEARSAL = "rehearse"  # the script of runs whose workers slept for the step times of another run
NOT_OF_REHEARSALS = ("script", "kind of GPU")  # the steps are those of the other run


class RunsError(OneSentence, ValueError):
    """Runs are too few for a prediction, or contradict each other."""


@dataclass
class Run:
    """The data of one training run on its speed."""

    name: str
    workers: int
    per_node: int
    batchsize: int  # per worker
    steps: numpy.ndarray  # seconds; a single mean if the steps were not measured separately
    network: str = ""  # such as "100mbit"; "" if it is not limited
    parameters: int | None = None
    dtype: str = "float32"
    double_buffering: bool = False
    overlap: bool = True  # all-reduces begin during backward
    evaluation: float = 0.0  # seconds after each epoch, by all workers together
    images: int = 0  # per epoch
    result: object = None

    @property
    def step(self):
        """The mean seconds of a step."""
        return float(numpy.mean(self.steps))


def read(paths):
    """Return ([Run], [measured network], [remark]) of the files and folders `paths`. Files that are not runs are left
    out, and so are profiled runs if there are others; remarks name them. Raises RunsError, ResultError or
    ProfileError."""
    runs, networks = [], []
    paths, remarks = _without_others([Path(path) for path in paths])
    for path in paths:
        if path.name.startswith("network") and path.suffix == ".json":
            networks.append(measured_network(path))
        elif path.is_dir() and not (path / "result.json").exists() and any(path.glob("*.json*")):
            runs.append(of_profile(path))
        elif path.is_dir() and not (path / "result.json").exists() and any(path.glob("*/result.json")):
            raise RunsError(f"{path} is not the folder of a run, but contains such folders: write {path}/*")
        else:
            result = results.read(path)
            runs.append(of_profile(path) if result.profiled and path.is_dir() else of_result(result))
    profiled = [run for run in runs if run.result and run.result.profiled]
    if profiled and len(profiled) < len(runs):
        remarks += [f"{run.name} is left out: it was profiled, which takes time in each step." for run in profiled]
        runs = [run for run in runs if not (run.result and run.result.profiled)]
    remarks += compare.disturbed([run.result for run in runs if run.result])
    for run in list(runs):
        if (
            run.result
            and "sharing" in run.result.device
            and any(run is not other and other.workers > 1 for other in runs)
        ):
            remarks.append(
                f"{run.name} is left out: its {run.workers} workers share cores, so each computes more slowly than it"
                " would alone."
            )
            runs.remove(run)
    remarks += [
        f"{run.name} does not contain the time of each step, so the spread is unknown: repeat the run."
        for run in runs
        if len(run.steps) == 1
    ]
    return runs, networks, remarks


def _without_others(paths):
    """Return (paths that may be runs, sentences that name the other paths). `results/*` also names other files in the
    folder, and stays unexpanded if the folder does not exist. If fewer than two paths are left, which is too few, all
    stay, to be refused."""
    others = [
        path
        for path in paths
        if (path.is_file() and path.suffix != ".json")
        or (not path.exists() and "*" in path.name)
        or (path.is_dir() and not any((*path.glob("*.json*"), *path.glob("*/result.json"))))
    ]
    if not others or len(paths) - len(others) < 2:
        return paths, []
    what = "it is not a run" if len(others) == 1 else "they are not runs"
    return [path for path in paths if path not in others], [f"Left out, as {what}: {', '.join(map(str, others))}."]


def of_result(result):
    """Return the Run of a Result."""
    mean = (result.train_seconds or result.seconds) * result.batchsize * result.workers / result.images
    steps = numpy.array(result.steps or [mean])
    own = result.script.startswith(("train_cifar", "train_hooks", "train_data_parallel"))
    return Run(
        name=result.folder or result.name,
        workers=result.workers,
        per_node=-(-result.workers // result.nodes),
        batchsize=result.batchsize,
        steps=steps,
        network=result.network,
        parameters=result.parameters,
        dtype=result.gradients or "float32",
        double_buffering=result.double_buffering,
        overlap=own and result.track == "pytorch",
        evaluation=(result.seconds - (result.train_seconds or result.seconds)) / result.epochs,
        images=result.images // result.epochs,
        result=result,
    )


def of_profile(folder):
    """Return the Run of a folder of profiles. Raises ProfileError, or RunsError if its ranks do not communicate."""
    from handson.profiling import analysis, readers

    [run] = readers.load([folder])
    shares = analysis.shares(run)
    if len(shares) > 1 and not any(rank.communication for rank in shares):
        raise RunsError(
            f"the profiles in {folder} are of {len(shares)} ranks and have no communication: record a training whose"
            " ranks communicate, as by python -m handson profile -- mpiexec -n 2 python train_cifar_multi_node.py"
        )
    if len(shares) < (size := max((timeline.size or 1 for timeline in run.timelines), default=1)):
        raise RunsError(
            f"the profiles in {folder} are of {len(shares)} of {size} ranks, so a rank has failed: record the run again"
            " by python -m handson profile"
        )
    if run.result is None:
        raise RunsError(
            f"the profiles in {folder} do not contain what was trained: give the run's own folder, with its result.json"
        )
    found = of_result(run.result)
    steps = analysis.common_steps(run)[0]
    found.steps, found.overlap = (steps[:, 2] - steps[:, 1]) / 1e9, any((rank.overlap or 0) > 0.1 for rank in shares)
    return found


@dataclass
class MeasuredNetwork:
    """The measurements of `python -m handson network`: seconds of gloo's all-reduces."""

    ranks: int
    nodes: int
    rate: str  # "100mbit", or "none"
    times: dict  # bytes -> [seconds of each repeat]


def measured_network(path):
    """Return the MeasuredNetwork in a file of `python -m handson network`. Raises RunsError."""
    try:
        content = json.loads(Path(path).read_text())
        [series] = [
            one for one in content["series"] if one["name"].startswith("all-reduce") and one["name"].endswith("gloo")
        ]
        found = MeasuredNetwork(
            int(content["ranks"]),
            int(content["nodes"]),
            str(content["rate"]),
            {int(size): times for size, times in series["times"].items()},
        )
        if (
            found.ranks < 2
            or len(found.times) < 2
            or not all(time > 0 for times in found.times.values() for time in times)
        ):
            raise ValueError("it lacks positive times")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunsError(
            f"{path} is not a measurement of a network ({str(error)[:80]}): submit jobs/pbs/run_network.sh, which"
            " writes one"
        ) from None
    return found


def check(runs):
    """Return (runs with one worker, runs with more). Raises RunsError if they are too few, or if their conditions
    differ."""
    if not runs:
        raise RunsError(f"there are no runs to learn from: {ONE}, then {MORE}, and give the folders of their results")
    for name in SAME:
        values = {
            compare.CONDITIONS[name](run.result)
            for run in runs
            if run.result and (run.result.script != REHEARSAL or name not in NOT_OF_REHEARSALS)
        }
        if len(values) > 1:
            first, second, *_ = sorted(values)
            raise RunsError(
                f"the runs differ in {name} ({first or 'as usual'}; {second or 'as usual'}): {ONE}, then {MORE}, both"
                " with the same options"
            )
    tracks = sorted({run.result.track for run in runs if run.result})
    if len(tracks) > 1:
        raise RunsError(f"the runs are of the tracks {' and '.join(tracks)}: {ONE}, then {MORE}, both of one track")
    if sizes := sorted({run.parameters for run in runs if run.parameters}):
        if len(sizes) > 1:
            raise RunsError(
                f"the runs train networks of {sizes[0]:,} and {sizes[1]:,} parameters: give runs of one network"
            )
    single, several = [run for run in runs if run.workers == 1], [run for run in runs if run.workers > 1]
    if problem := _too_few(runs, single, several):
        raise RunsError(problem)
    for run in several:
        if run.result and run.workers % run.result.nodes:
            raise RunsError(
                f"{run.name} has {run.workers} workers on {run.result.nodes} nodes, so one node has more than another:"
                " repeat the run with as many on each node, such as select=2:ngpus=2:mpiprocs=2 in"
                " run_multi_node_training.sh"
            )
        if run.network:
            message_times.rate(run.network)
    return single, several


def _too_few(runs, single, several):
    """Return a sentence if the runs are all of one worker, or all of more; otherwise None."""
    workers = runs[0].workers
    if not single and len(runs) == 1:
        return (
            f"there is only one run, of {workers} workers, which do not show how long one worker computes: {ONE}, and"
            " give its folder, too"
        )
    if not single:
        return (
            f"all runs are of {workers} workers, which do not show how long one worker computes: {ONE}, and give its"
            " folder, too"
        )
    if not several and len(runs) == 1:
        return (
            f"there is only one run, of one worker, which do not show what communication costs: {MORE}, and give its"
            " folder, too"
        )
    if not several:
        return (
            f"all runs are of one worker, which do not show what communication costs: {MORE}, and give its folder, too"
        )
    return None
