"""The result of a training run, DIR/result.json, which only this module writes and reads.

A training script writes its numbers at the end; code that compares runs calls `read`.
"""

import importlib.metadata
import json
import math
import operator
import platform
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from handson.errors import OneSentence
from handson.files import written_aside
from handson.language import speak
from handson.profiling import recording, usage
from handson.tables import wanted
from handson.training import equal_ranks, gpu_memory, identity, step_times
from handson.training.options import LEARNING_RATE

OPTIONAL = ("model", "usage", "memory", "steps", "parameters", "unequal")  # fields that may be missing
# fields that older versions of the course did not write
SINCE = {"script": "which script was run", "network": "how its workers communicated"}
LARGEST_FILE = 16 * 2**20  # bytes; ours have a few thousand
LARGEST = 1e15  # number in a result
AboveZero = Annotated[float, Meta(gt=0, le=LARGEST, description="a positive number")]
Count = Annotated[int, Meta(ge=1, le=10**15, description="a positive whole number")]
Whole = Annotated[int, Meta(ge=-(10**15), le=10**15, description="a whole number")]
Flag = Annotated[bool, Meta(description="true or false")]
Line = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z", description="a line of text")]
Name = Annotated[Line, Meta(min_length=1, description="a line of text")]
Log = Annotated[list[dict[str, usage.Number | None]], Meta(description="a list of numbers by name")]
Versions = Annotated[dict, Meta(description="a table")]
Steps = Annotated[list[AboveZero], Meta(description="a list of positive numbers")]
Memory = Annotated[list[gpu_memory.Account], Meta(description="what ranks have counted")]
Usage = Annotated[usage.Usage, Meta(description="what devices did")]


class ResultError(OneSentence, ValueError):
    """A result is wrong or missing."""


class OldResult(ResultError):
    """A result of an older version of the course, which lacks fields."""


@dataclass
class Result:
    """One training run."""

    unit: Line  # the course's unit, such as "multi_gpu"; "" for a script outside the units' folders
    script: Name  # without its suffix: "train_cifar_multi_gpu"
    track: Name  # "pytorch" or "chainer"
    profiled: Flag  # profiling also takes time
    workers: Count
    nodes: Count
    device: Name  # "1 virtual GPU (core 0)", or the GPU's name
    dataset: Name
    size: Count  # pixels, after enlarging
    batchsize: Count  # per worker
    epochs: Count
    seed: Whole
    images: Count  # all workers together trained on them, in all epochs
    seconds: AboveZero  # from the start of training to its end, including evaluation
    train_seconds: AboveZero | None = None  # only in training iterations
    throughput: AboveZero = None  # images/s; images / seconds unless given
    log: Log = field(default_factory=list)  # a dict for each epoch: name -> number, None where it was not finite
    lr: AboveZero = LEARNING_RATE
    model: Line | None = None  # the network of --model; None if the script trains another
    network: Line = ""  # the rate of each node's network, such as "100mbit"; "" if it is not limited
    communicator: Line = ""  # the library that sends the gradients: "gloo", "nccl", ...; "" without communication
    # the data type of the gradients on the network, such as "float16"; "" if each keeps its type and is one message
    gradients: Line = ""
    double_buffering: Flag = False  # a step's gradients are sent while the next step computes
    versions: Versions = field(default_factory=dict)  # software -> version
    usage: Usage | None = None  # the use of the devices, as handson.profiling.usage.read returns it
    # each rank's GPU memory, as handson.training.gpu_memory.summary returns it; None if it was not counted
    memory: Memory | None = None
    # seconds of rank 0's last steps, without the first of each epoch; None if they were not measured
    steps: Steps | None = None
    parameters: Count | None = None  # number of elements of a step's gradient
    unequal: Line = ""  # the difference between the ranks of a data-parallel run, in words
    # the folder from which it was read; the file does not contain it
    folder: str | None = field(default=None, compare=False)

    def __post_init__(self):
        if self.throughput is None and self.seconds:
            self.throughput = self.images / self.seconds

    @property
    def name(self):
        """Return the unit of the lecture's scripts, such as "multi_gpu"; for other scripts, the script."""
        return identity.name(self.unit, self.script)

    @property
    def training(self):
        """Return the kind of training; only runs of the same kind are comparable."""
        return identity.training(self.unit, self.script)

    @property
    def disturbance(self):
        """Return the usage.Disturbance by other programs that makes the run's times unreliable ("other programs took 40
        % of the cores of node1: repeat the run"); or None."""
        return usage.disturbance(self.usage, self.workers)


def throughput_line(throughput, images, seconds, counted="images"):
    """Return the last line of every training run, for a throughput in images/s, in the lecture's form. counted: what a
    batch consists of, if not of images."""
    return f"Throughput: {throughput} [{counted}/sec.] ({images} / {seconds})"


def write(result, out_dir):
    """Write `result` to out_dir/result.json, completely or not at all. Numbers in the log may be of NumPy, torch or
    CuPy.

    A loss that is infinite or NaN is stored as null. Return the path. Raises ResultError.
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
    """Return the Result in a file, or in the result.json of a directory. Raises ResultError."""
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
            raise OldResult(f"{path} was written by an older version of the course and has no {lacks}: repeat the run")
        problem = _what_is_wrong(content)
    except OldResult:
        raise
    except (ValueError, RecursionError) as error:
        problem = f"it is not the JSON of a run ({str(error)[:200]})"
    if problem:
        raise ResultError(f"{path} is not the result of a run, because {problem}: repeat the run")
    return Result(**{field.name: content.get(field.name) for field in fields(Result)} | {"folder": str(path.parent)})


def _plain(value):
    """Return a number in the form of JSON, or None for NaN, infinity, and the loss of a run that diverges."""
    value = int(value) if isinstance(value, Integral) else float(value)
    return value if abs(value) <= LARGEST else None


def _what_is_wrong(content):
    """Return why `content`, a dict of Result's fields, is not a result, as the end of a sentence, or None if it is
    one."""
    if not isinstance(content, dict):
        return "it is not a JSON object"
    if missing := [
        field.name for field in fields(Result) if field.name not in content and field.name not in (*OPTIONAL, "folder")
    ]:
        return f"{missing[0]} is missing"
    try:
        msgspec.convert(content, Result)
    except msgspec.ValidationError as error:
        return "{} is not {}".format(*wanted(error, Result))
    if content["nodes"] > content["workers"]:
        return "it has more nodes than workers"
    if not math.isclose(content["throughput"], content["images"] / content["seconds"], rel_tol=1e-3):
        return "throughput is not images / seconds"
    return None


def finish(args, manager, evaluator, throughput, images, seconds):
    """End a training script whose `manager` (or Chainer's trainer) reports: call `report` on rank 0, and do nothing on
    other ranks.

    The log is that of the manager's LogReport, which only rank 0 has; `evaluator.seconds` is the time of the
    evaluations.
    """
    try:
        log = manager.get_extension("LogReport").log
    except ValueError:
        return
    report(args, throughput, images, seconds, log, evaluator.seconds)


def report(args, throughput, images, seconds, log, evaluation_seconds=0):
    """Print a run's `throughput` (images/s) at its end, and write its result to args.out. Return the path.

    args: the script's options, and the fields that `announce` has added. images: the images that all workers have
    trained on in `seconds`, which include `evaluation_seconds` of evaluation. log: a dict for each epoch. Raises
    ResultError.
    """
    with suppress(TypeError):
        images = operator.index(images)  # converts integers of NumPy and torch
    used = usage.read(args.out, seconds)
    if disturbance := usage.disturbance(used, args.workers):
        speak(f"Warning: {disturbance}.", file=sys.stderr, flush=True)  # standard output is the lecture's
    if equal_ranks.problem:
        speak(f"Warning: {equal_ranks.problem}", file=sys.stderr, flush=True)
    print(throughput_line(throughput, images, seconds, getattr(args, "counted", "images")), flush=True)
    run = {
        name: getattr(args, name) for name in ("unit", "script", "track", "dataset", "size", "batchsize", "seed", "lr")
    }
    run |= {name: getattr(args, name, "") for name in ("network", "communicator")}
    run["model"] = getattr(args, "model", None) if identity.offers_models(args.unit, args.script) else None
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
        usage=used,
        memory=gpu_memory.summary(args.out),
        steps=step_times.seconds() or None,
        parameters=step_times.parameters or None,
        unequal=equal_ranks.problem,
    )
    return write(result, args.out)
