"""What a training run leaves behind: DIR/result.json, written and read here and nowhere else.

A training script `save`s its numbers at the end; whatever compares runs uses `read`.
"""

import importlib.metadata
import json
import math
import operator
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from pathlib import Path

from handson.errors import OneSentence
from handson.files import written_aside
from handson.profiling import recording, usage
from handson.training import gpu_memory, identity, step_times
from handson.training.options import LEARNING_RATE

OPTIONAL = ("usage", "memory", "steps", "parameters")  # what a run can lack
# fields that older versions of the course did not write
SINCE = {"script": "which script was run", "network": "how its workers communicated"}
LARGEST_FILE = 16 * 2**20  # bytes; ours have a few thousand
LARGEST_NUMBER = 1e15
MAY_BE_EMPTY = ("unit", "network", "communicator", "gradients")


class ResultError(OneSentence, ValueError):
    """What is wrong with a result."""


class OldResult(ResultError):
    """It was written by a version of the course whose results said less."""


@dataclass
class Result:
    """One training run."""

    unit: str  # of the course, such as "multi_gpu"; "" for a script that lies in no unit's folder
    script: str  # without its suffix: "train_cifar_multi_gpu"
    track: str  # "pytorch" or "chainer"
    profiled: bool  # recording takes time, too
    workers: int
    nodes: int
    device: str  # "1 virtual GPU (core 0)", or the GPU's name
    dataset: str
    size: int  # pixels, after enlarging
    batchsize: int  # per worker
    epochs: int
    seed: int
    images: int  # by all workers in all epochs
    seconds: float  # from the start of training to its end, with evaluation
    train_seconds: float | None = None  # in training iterations alone
    throughput: float | None = None  # images/s; images / seconds unless given
    log: list = field(default_factory=list)  # a dict for each epoch: name -> number, None where it was not finite
    lr: float = LEARNING_RATE
    network: str = ""  # the rate of each node's network, such as "100mbit"; "" where it is not limited
    communicator: str = ""  # what carries the gradients: "gloo", "nccl", "naive", ...; "" where no communicator does
    # the type in which they travel, such as "float16"; "": in that of the parameters, and each parameter alone
    gradients: str = ""
    double_buffering: bool = False  # the gradients of a step travel while the next one is computed
    versions: dict = field(default_factory=dict)  # software -> version
    usage: dict | None = None  # of devices during the run, as handson.profiling.usage.read has it
    # of each rank's GPU, as handson.training.gpu_memory.summary has it; None where it was not counted
    memory: list | None = None
    # seconds of rank 0's last steps, without the first of each epoch; None: they were not measured
    steps: list | None = None
    parameters: int | None = None  # numbers that the gradient of a step consists of
    folder: str | None = field(default=None, compare=False)  # where it was read; not part of the file

    def __post_init__(self):
        if self.throughput is None and self.seconds:
            self.throughput = self.images / self.seconds

    @property
    def name(self):
        """The unit of the lecture's scripts, such as "multi_gpu"; else the script."""
        return identity.name(self.unit, self.script)

    @property
    def training(self):
        """What was trained; runs that train something else are not comparable."""
        return identity.training(self.unit, self.script)

    @property
    def busy(self):
        """Which node other programs kept busy during the run, so that its times say little: "node1 busy: 14 processes
        wanted 2 cores"; or ""."""
        for node in (self.usage or {}).get("nodes", ()):
            if node["running"] > max(node["cores"], self.workers) + max(1, node["cores"] / 4):
                return (
                    f"{node['name']} busy: {node['running']:.0f} processes wanted {node['cores']}"
                    f" core{'s' * (node['cores'] > 1)}"
                )
        return ""


def throughput_line(throughput, images, seconds):
    """The line that closes every training run, of a throughput in images/s; as in the lecture."""
    return f"Throughput: {throughput} [images/sec.] ({images} / {seconds})"


def write(result, out_dir):
    """Write `result` to out_dir/result.json, complete or not at all. Numbers of the log may be of NumPy, torch or CuPy.

    A loss that became infinite or NaN is stored as null. Returns the path. Raises ResultError.
    """
    path = Path(out_dir) / "result.json"
    content = asdict(result)
    del content["folder"]
    content["log"] = [{name: _plain(value) for name, value in epoch.items()} for epoch in content["log"]]
    if problem := _what_is_wrong(content):
        raise ResultError(
            f"this result cannot be written to {path}, because {problem}: correct the program that made it"
        )
    try:
        with written_aside(path) as file:
            file.write(json.dumps(content, indent=1, allow_nan=False).encode() + b"\n")
    except OSError as error:
        raise ResultError(f"{path} cannot be written ({error.strerror}): give another output directory") from None
    return path


def read(path):
    """The Result in a file, or in the result.json of a directory. Raises ResultError."""
    path = Path(path)
    path = path / "result.json" if path.is_dir() else path
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ResultError(f"there is no {path}: give the output directory of a run that has ended well") from None
    except OSError as error:
        raise ResultError(f"{path} cannot be read ({error.strerror}): give the output directory of a run") from None
    try:
        if len(text) > LARGEST_FILE:
            raise ValueError(f"more than {LARGEST_FILE:,} bytes")
        content = json.loads(text)
        if (
            isinstance(content, dict)
            and "track" in content
            and (lacks := next((said for name, said in SINCE.items() if name not in content), None))
        ):
            raise OldResult(f"{path} is of an older version of the course and does not say {lacks}: repeat the run")
        problem = _what_is_wrong(content)
    except OldResult:
        raise
    except (ValueError, RecursionError) as error:
        problem = f"it is no JSON of a run ({str(error)[:200]})"
    if problem:
        raise ResultError(f"{path} is not the result of a run, because {problem}: repeat the run")
    return Result(**{field.name: content.get(field.name) for field in fields(Result)} | {"folder": str(path.parent)})


def _plain(value):
    """A number as JSON has it; None for NaN and infinity."""
    value = int(value) if isinstance(value, Integral) else float(value)
    return value if math.isfinite(value) else None


def _what_is_wrong(content):
    """Why `content`, a dict of Result's fields, is no result, as the end of a sentence; None when it is one."""
    if not isinstance(content, dict):
        return "it is no JSON object"
    if missing := [
        field.name for field in fields(Result) if field.name not in content and field.name not in (*OPTIONAL, "folder")
    ]:
        return f"{missing[0]} is missing"
    for name in ("unit", "script", "track", "device", "dataset", "network", "communicator", "gradients"):
        if (
            not isinstance(content[name], str)
            or not (content[name] or name in MAY_BE_EMPTY)
            or not content[name].isprintable()
        ):
            return f"{name} is not a line of text"
    for name in ("profiled", "double_buffering"):
        if not isinstance(content[name], bool):
            return f"{name} is neither true nor false"
    for name in ("workers", "nodes", "size", "batchsize", "epochs", "images"):
        if not _is_number(content[name], int) or content[name] < 1:
            return f"{name} is not a positive whole number"
    if not _is_number(content["seed"], int):
        return "seed is not a whole number"
    for name in ("seconds", "throughput", "lr", "train_seconds"):
        if not (_is_number(content[name]) and content[name] > 0) and (name, content[name]) != ("train_seconds", None):
            return f"{name} is not a positive number"
    if content["nodes"] > content["workers"]:
        return "it has more nodes than workers"
    if not math.isclose(content["throughput"], content["images"] / content["seconds"], rel_tol=1e-3):
        return "throughput is not images / seconds"
    if not isinstance(content["versions"], dict) or not isinstance(content["log"], list):
        return "versions or log has the wrong type"
    if not _is_usage(content.get("usage")):
        return "usage is not what devices did"
    memory = content.get("memory")
    if memory is not None and not (
        isinstance(memory, list) and all(gpu_memory.is_account(one, step=False) for one in memory)
    ):
        return "memory is not what ranks have counted"
    steps, parameters = content.get("steps"), content.get("parameters")
    if steps is not None and not (isinstance(steps, list) and all(_is_number(step) and step > 0 for step in steps)):
        return "steps is not a list of positive numbers"
    if parameters is not None and not (_is_number(parameters, int) and parameters > 0):
        return "parameters is not a positive whole number"
    for epoch in content["log"]:
        if not isinstance(epoch, dict) or not all(value is None or _is_number(value) for value in epoch.values()):
            return "log is not a list of numbers by name"
    return None


def _is_usage(usage):
    """Whether this is what usage.read returns."""
    if usage is None:
        return True
    try:
        nodes = usage.get("nodes", [])
        numbers = [usage["begin"], usage["interval"], *(device["energy"] or 0 for device in usage["devices"])]
        numbers += [number for node in nodes for number in (node["running"], node["cores"])]
        numbers += [
            number for device in usage["devices"] for name in ("utilisation", "memory") for number in device[name]
        ]
        return all(map(_is_number, numbers)) and all(
            isinstance(one["name"], str) for one in [*usage["devices"], *nodes]
        )
    except (KeyError, TypeError, AttributeError):
        return False


def _is_number(value, types=(int, float)):
    return isinstance(value, types) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER


def finish(args, manager, evaluator, throughput, images, seconds):
    """The end of a training script whose `manager` (or Chainer's trainer) reports: on rank 0, `report`; elsewhere,
    nothing.

    The log is that of the manager's LogReport, which rank 0 alone has; `evaluator.seconds` are what evaluation took.
    """
    try:
        log = manager.get_extension("LogReport").log
    except ValueError:
        return
    report(args, throughput, images, seconds, log, evaluator.seconds)


def report(args, throughput, images, seconds, log, evaluation_seconds=0):
    """The end of a training: print its `throughput` (images/s), and write its result to args.out.

    args: the script's options, and what `announce` has added to them. images: trained on by all workers in `seconds`,
    of which `evaluation_seconds` went into evaluation. log: a dict for each epoch. Returns the path. Raises
    ResultError.
    """
    with suppress(TypeError):
        images = operator.index(images)  # a whole number of NumPy or torch, too
    print(throughput_line(throughput, images, seconds), flush=True)
    run = {
        name: getattr(args, name) for name in ("unit", "script", "track", "dataset", "size", "batchsize", "seed", "lr")
    }
    run |= {name: getattr(args, name, "") for name in ("network", "communicator")}
    run |= {
        "gradients": getattr(args, "allreduce_grad_dtype", None) or "",
        "double_buffering": getattr(args, "double_buffering", False),
    }
    software = identity.SOFTWARE[args.track]
    versions = {"python": platform.python_version(), software: importlib.metadata.version(software)}
    train_seconds = seconds - evaluation_seconds - recording.seconds_writing()
    result = Result(
        **run,
        profiled=recording.plan() is not None,
        workers=args.workers,
        nodes=args.nodes,
        device=args.devices,
        epochs=args.epoch,
        images=images,
        seconds=seconds,
        train_seconds=train_seconds,
        log=log,
        versions=versions,
        usage=usage.read(args.out),
        memory=gpu_memory.summary(args.out),
        steps=step_times.seconds() or None,
        parameters=step_times.parameters or None,
    )
    return write(result, args.out)
