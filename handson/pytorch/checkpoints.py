"""Checkpoints of train_restarts.py: folders of torch.distributed.checkpoint, to which each rank adds its part.

A checkpoint contains the state that is equal on all ranks ("shared"), and each rank's own state ("rank 0", "rank 1",
...).
"""

import math
import os
import shutil
import signal
import sys
import warnings
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from handson.cluster.nodes import current_node
from handson.errors import OneSentence
from handson.training import options

KEPT = 2  # number of checkpoints: an older one is needed if the newest cannot be read


class CheckpointError(OneSentence, ValueError):
    """A checkpoint is wrong or missing. All ranks have compared their findings."""

    on_all_ranks = True


def add_options(parser):
    """Add the options that only train_restarts.py has."""
    add = parser.add_argument
    add(
        "--every",
        type=options.positive(int),
        default=10,
        metavar="STEPS",
        help="number of steps between two checkpoints. Default: %(default)s",
    )
    add(
        "--noise",
        type=options.natural,
        default=20,
        metavar="PIXELS",
        help="standard deviation of the image noise, on a scale of 255. Default: %(default)s",
    )
    parser.set_defaults(size=8, lr=0.03)


def path(folder, batches):
    """Return the name of the checkpoint in `folder` after all images that `batches`, a Partition, has returned so
    far."""
    return Path(folder, f"{batches.epoch * batches.samples + batches.position:09}")


def whole(folder):
    """Return the complete checkpoints in `folder`, the newest first. torch writes the file .metadata last."""
    return sorted((file.parent for file in Path(folder).glob("*/.metadata")), reverse=True)


def remove_old(folder):
    """Remove all but the newest checkpoints, if the last one is complete. All ranks may call it; rank 0 removes them.
    On the node that this job kills (see `torchrun_nodes`), the ranks then die."""
    if dist.get_rank() == 0:
        kept = whole(folder)[:KEPT]
        for one in Path(folder).iterdir():
            if one not in kept:
                shutil.rmtree(one)
    if os.environ.get("HANDSON_KILL_NODE"):
        print(f"{current_node()} dies: all processes of the training there are killed", flush=True)
        torchrun = psutil.Process(os.getppid())
        for process in (torchrun, *torchrun.children(recursive=True)):
            if process.pid != os.getpid():
                process.kill()
        os.kill(os.getpid(), signal.SIGKILL)


def load(folder, device):
    """Return (shared, own) of this rank, from the newest readable checkpoint in `folder`, or None if there is no
    checkpoint. All ranks must call it. Raises CheckpointError if none can be read.

    A run may resume with another number of ranks. Each rank then starts with the mean of all ranks' residuals, so that
    their sum divided by the number of ranks stays the same, and its random numbers start again.
    """
    box = [[(one, _metadata(one)) for one in whole(folder)] if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, 0)
    problems = []
    for one, metadata in box[0]:
        try:
            state = _read(one, metadata)
        except (Exception, dcp.api.CheckpointException):  # a file that was cut off can fail in any way, on any rank
            problems.append(f"the checkpoint {one} is damaged")
            continue
        if dist.get_rank() == 0 and problems:
            print(f"{problems[0]}: the checkpoint before it is used", file=sys.stderr, flush=True)
        return state["shared"], _own(state, device)
    if problems:
        raise CheckpointError(f"{problems[0]}, and no earlier checkpoint can be read: delete {folder}")
    return None


def _own(state, device):
    """Return this rank's own state, on its device, from the state of all ranks; see `load`."""
    everybodys = [state[name] for name in sorted(state.keys() - {"shared"}, key=lambda name: int(name.split()[1]))]
    if len(everybodys) == dist.get_world_size():
        own = everybodys[dist.get_rank()]
    else:
        of_ranks = [one["residuals"] for one in everybodys]
        mean = {bucket: sum(one[bucket] for one in of_ranks) / len(of_ranks) for bucket in of_ranks[0]}
        own = {"residuals": mean, "random": torch.get_rng_state()}
    return own | {"residuals": {bucket: one.to(device) for bucket, one in own["residuals"].items()}}


def _metadata(checkpoint):
    """Return the names, shapes and types of a checkpoint's content, or None if they cannot be read."""
    try:
        return dcp.FileSystemReader(checkpoint).read_metadata()
    except Exception:  # a file that was cut off can fail in any way
        return None


def _read(checkpoint, metadata):
    """Return the complete content of a checkpoint on the CPU, in dictionaries and lists as it was saved. In a process
    group, all ranks must call it."""
    flat = {
        name: torch.empty(one.size, dtype=one.properties.dtype) if isinstance(one, TensorStorageMetadata) else None
        for name, one in metadata.state_dict_metadata.items()
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # a notebook has no process group
        dcp.load(flat, checkpoint_id=checkpoint, no_dist=not dist.is_initialized())
    state = {}
    for name, places in metadata.planner_data.items():
        inside = state
        for place in places[:-1]:
            inside = inside.setdefault(place, {})
        inside[places[-1]] = flat[name]
    return _as_saved(state)


def _as_saved(state):
    """Restore a nest of dictionaries in which dcp has converted keys to strings, and lists to dictionaries with
    integers."""
    if not isinstance(state, dict):
        return state
    inside = [_as_saved(one) for one in state.values()]
    if all(isinstance(place, int) for place in state):
        return inside
    return {int(key) if key.isdigit() else key: one for key, one in zip(state, inside)}


def say_where(batches):
    """Print on rank 0 where a run resumes."""
    if dist.get_rank() == 0:
        print(
            f"Resuming in epoch {batches.epoch + 1}, after {batches.position} of {batches.samples} images", flush=True
        )


def differences(one, other):
    """Return the largest differences between the last checkpoints of two runs, whose folders are given: name of a part
    -> number; for residuals and random numbers, per rank."""
    newest = [whole(Path(run, "checkpoints"))[0] for run in (one, other)]
    first, second = (_read(checkpoint, _metadata(checkpoint)) for checkpoint in newest)
    found = {part: _largest(first["shared"][part], second["shared"][part]) for part in first["shared"]}
    for rank in sorted(first.keys() - {"shared"}):
        for part in first[rank]:
            found[f"{part} of {rank}"] = _largest(first[rank][part], second[rank][part])
    return found


def _largest(one, other):
    """Return the largest difference between two nests of dictionaries and lists of tensors and numbers; infinite if
    their forms differ."""
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return math.inf
        return max((_largest(one[name], other[name]) for name in one), default=0.0)
    if isinstance(one, (list, tuple)):
        return max(map(_largest, one, other), default=0.0) if len(one) == len(other) else math.inf
    if hasattr(one, "shape"):
        if one.shape != other.shape:
            return math.inf
        return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0
    if isinstance(one, (int, float)) and not isinstance(one, bool):
        return abs(one - other)
    return 0.0 if one == other else math.inf
