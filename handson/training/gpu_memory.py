"""The memory of a GPU: the amount that `--gpu-memory` gives a rank, the parts that a run reports, and the message for a
full GPU.

Both tracks, the batch commands and the reports use this module, so it imports neither torch nor Chainer.
`handson.pytorch.memory_counter` counts the tensors of a rank. Nothing is counted without --gpu-memory.
"""

import json
import mmap
import os
import struct
from pathlib import Path
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta

from handson import chosen_device, linux
from handson.cluster.nodes import gpu_of_machine, job_nodes
from handson.errors import OneSentence
from handson.files import written_aside
from handson.language import marked
from handson.sizes import words

PARTS = marked(("parameters", "gradients", "optimizer", "activations"))
# the default of --gpu-memory; `qsub -l gpu_memory=300mb` sets it
VARIABLE = "HANDSON_GPU_MEMORY"
LARGEST_FILE = 16 * 2**20  # bytes
LONGEST_STEP = 5_000  # samples of a step that a file keeps
LIVE = "handson_gpu_memory"  # the name of a process's file in memory: bytes in use, and the limit
LIVE_FORMAT = struct.Struct("dd")

Size = Annotated[float, Meta(ge=0, lt=2**60)]
OfParts = TypedDict("OfParts", dict.fromkeys(PARTS, Size))
Predicted = TypedDict("Predicted", dict.fromkeys(PARTS, Size | None))


class Account(TypedDict):
    """The memory that a rank has counted, in bytes."""

    rank: Size
    device: Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z")]  # words
    limit: Size | None
    peak: OfParts  # when most was in use
    most: OfParts  # the peak of each part separately
    predicted: Predicted  # the formulas' values for `most`; None without a formula
    asked: Size | None  # the allocation that failed


class Counted(Account):
    """An Account with the samples of one step: seconds, phase, and bytes of each of PARTS."""

    step: list[tuple[Size, str, Size, Size, Size, Size]]


limit = None  # bytes per GPU in this run; math.inf if unlimited; None if nothing is counted
folder = None  # the ranks write their counts into this folder
gpus = ()  # the ids that the workers of this node have


class OutOfMemory(OneSentence):
    """A GPU is full. `asked`: the bytes that did not fit; `in_use`: the bytes of each of PARTS."""

    def __init__(self, where, asked, limit, in_use, operation="an operation", network=False):
        """Describe a failed allocation. where: for example "virtual GPU 0"; network: whether the tensor belongs to the
        network itself, and so does not depend on the batch size."""
        self.asked, self.in_use = asked, dict(in_use)
        free = max(0, limit - sum(in_use.values()))
        held = ", ".join(f"{part} {words(size)}" for part, size in in_use.items())
        own = sum(in_use.values()) - in_use["activations"] + asked * network
        cure = "take a smaller batch (-b) or smaller images (--size)"
        if network or own > limit / 2:
            cure = (
                "most of that is the network's own, whatever the batch: take a smaller network, split it over more GPUs"
            )
        super().__init__(
            f"{where} is out of memory: {operation} tried to allocate {words(asked)}, but {words(free)} of"
            f" {words(limit)} are free; in use are {held}: {cure}, or a GPU with more memory (--gpu-memory)"
        )


def begin(args):
    """Make the ranks of this process count as the options `args` of a training script request. They write into
    args.out."""
    global limit, folder, gpus
    limit, folder, gpus = getattr(args, "gpu_memory", None), args.out, args.gpu or ()


def workers_on(gpu, count):
    """Return the number of workers on this machine that use the GPU `gpu`, or the GPU of which it is a part; or that
    could use it, if it is divided into parts. count: the number of the machine's GPUs, or of their parts."""

    def real(one, node=None):
        return gpu_of_machine(one, count, node) // chosen_device.parts

    in_use = [real(one, node) for node in job_nodes() or [None] for one in gpus]
    return max(1, in_use.count(real(gpu)), chosen_device.parts)


def forget(out):
    """Remove the files that ranks of an earlier run have written into the folder `out`."""
    for path in Path(out).glob("memory_rank*.json"):
        path.unlink(missing_ok=True)


def write(rank, account):
    """Write the counts of `rank`: see `read`. An error never stops training."""
    try:
        with written_aside(Path(folder) / f"memory_rank{rank}.json", durable=False) as file:
            file.write(
                json.dumps(account | {"rank": rank, "step": _thinned(account["step"])}, allow_nan=False).encode()
                + b"\n"
            )
    except OSError:  # such as a full disk, which the result reports
        return


def _thinned(moments):
    """Return at most LONGEST_STEP samples of a step. Each group of neighbours keeps the sample with the largest use."""
    group = -(-len(moments) // LONGEST_STEP) or 1
    return [max(moments[at : at + group], key=lambda moment: sum(moment[2:])) for at in range(0, len(moments), group)]


def read(out):
    """Return the counts of the ranks of the run in the folder `out`, as a list of Counted in the order of the ranks;
    empty if they have counted nothing. Raises ValueError."""
    found = []
    for path in Path(out).glob("memory_rank*.json"):
        with open(path, "rb") as file:
            text = file.read(LARGEST_FILE + 1)
        try:
            account = json.loads(text if len(text) <= LARGEST_FILE else "")
            msgspec.convert(account, Counted)
        except (ValueError, RecursionError):
            raise ValueError(f"{path} is not what a rank has counted of its memory: repeat the run") from None
        found.append(account)
    return sorted(found, key=lambda account: account["rank"])


def summary(out):
    """Return the result of `read` without the steps, for result.json, or None if nothing was counted or a file is
    damaged."""
    try:
        return [{name: value for name, value in account.items() if name != "step"} for account in read(out)] or None
    except (OSError, ValueError):
        return None


class Live:
    """The current memory use of this process, for `python -m handson watch`: a file in memory, which disappears with
    the process."""

    def __init__(self, limit):
        file = os.memfd_create(LIVE)
        os.ftruncate(file, LIVE_FORMAT.size)
        self.map, self.limit = mmap.mmap(file, LIVE_FORMAT.size), limit
        self.show(0)

    def show(self, in_use):
        LIVE_FORMAT.pack_into(self.map, 0, in_use, self.limit)


def live(process):
    """Return (bytes in use, limit in bytes) of a process that counts, or None for any other process. Only processes of
    this user are read."""
    if (path := linux.file_in_memory(process, LIVE)) is None:
        return None
    try:
        with open(path, "rb") as file:
            return LIVE_FORMAT.unpack(file.read(LIVE_FORMAT.size))
    except (OSError, struct.error):  # it has ended, or belongs to somebody else
        return None
