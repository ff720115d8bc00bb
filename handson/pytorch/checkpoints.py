"""Checkpoints of runs with several ranks: one file, written aside and renamed, and the one before stays until the next
is complete.

A checkpoint has two parts: what is the same on all ranks (the model), and what each rank has for itself (its
residuals).
"""

import contextlib
import math
import os
import sys
from pathlib import Path

import torch

from handson.errors import OneSentence
from handson.files import written_aside
from handson.training import options


class CheckpointError(OneSentence, ValueError):
    """What is wrong with a checkpoint. All ranks have compared what they found."""

    on_all_ranks = True


def before(path):
    """Where the checkpoint before the last one is."""
    return Path(f"{path}.before")


def exists(path):
    """Whether there is a checkpoint to go on from."""
    return Path(path).exists() or before(path).exists()


def save(path, shared, own, comm):
    """Write a checkpoint; all ranks call it. shared: the same on all ranks; own: of this rank. Both: dictionaries of
    tensors and numbers.

    comm: a communicator with `rank`, `gather` and `barrier`. When this returns, the file is complete.
    """
    everybodys = comm.gather(own)
    if comm.rank == 0:
        with written_aside(path) as file:
            torch.save({"shared": shared, "own": everybodys}, file)
            file.flush()
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, before(path))
    comm.barrier()


def load(path, comm):
    """(shared, own) of this rank, from the last checkpoint, or the one before if that is damaged; None if there is
    none. All ranks call it.

    comm: has `rank`, `size` and `allgather`. Raises CheckpointError if no checkpoint is whole, or it is of another
    number of ranks.
    """
    found, problems = None, []
    for candidate in (Path(path), before(path)):
        content = _read(candidate)
        everywhere = comm.allgather("" if isinstance(content, dict) else str(content))
        problem = next(filter(None, everywhere), "")
        if not problem:
            found = content
            break
        if candidate.exists():
            problems.append(f"rank {everywhere.index(problem)}: {problem}")
    if found is None:
        if problems:
            raise CheckpointError(
                f"{problems[0]}; there is no whole checkpoint before it: delete {path}*, and begin anew"
            )
        return None
    for problem in problems if comm.rank == 0 else ():
        print(f"{problem}: the checkpoint before it is used", file=sys.stderr, flush=True)
    if len(found["own"]) != comm.size:
        raise CheckpointError(
            f"the checkpoint {candidate} is of {len(found['own'])} ranks, and this run has {comm.size}: "
            "each rank needs its own part of it, so start as many"
        )
    return found["shared"], found["own"][comm.rank]


def _read(path):
    """The content of a checkpoint, or why it cannot be read, as the beginning of a sentence."""
    try:
        content = torch.load(path, map_location=_here, weights_only=True)
    except FileNotFoundError:
        return f"there is no checkpoint {path}"
    except Exception as error:  # a file that was cut off can fail in any way
        return f"the checkpoint {path} is cut off or damaged ({type(error).__name__})"
    if not isinstance(content, dict) or not isinstance(content.get("own"), list) or "shared" not in content:
        return f"the file {path} is no checkpoint of this course"
    return content


def _here(storage, location):
    """What was on a GPU comes to the GPU of this process; the state of a generator stays where it is needed, on the
    host."""
    return storage if location == "cpu" else storage.cuda()


def add_options(parser):
    """Options of train_restarts.py beside those of all training scripts."""
    add = parser.add_argument
    add("--every", type=options.positive(int), default=10, metavar="STEPS", help="steps between two checkpoints (10)")
    add(
        "--noise",
        type=options.natural,
        default=20,
        metavar="PIXELS",
        help="standard deviation of the noise on the images, of 255 (20)",
    )
    parser.set_defaults(size=8, lr=0.03)


def check_residuals(residuals, model, path, comm):
    """All ranks call it after a restart. residuals: bucket -> tensor. Raises CheckpointError if they don't fit the
    parameters of `model`."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    counts = comm.allgather(sum(residual.numel() for residual in residuals.values()))
    wrong = next((rank for rank, count in enumerate(counts) if count not in (0, parameters)), None)
    if wrong is not None:
        numbers = f"have {counts[wrong]:,} numbers, and the model {parameters:,} parameters"
        cure = "they are of another model; delete the checkpoint, or use that model"
        raise CheckpointError(f"rank {wrong}: the residuals in the checkpoint {path} {numbers}: {cure}")


def say_where(batches, path, comm):
    """Rank 0 prints where a run goes on."""
    if comm.rank == 0:
        print(
            f"Going on in epoch {batches.epoch + 1}, after {batches.position} of {batches.samples} images, from {path}",
            flush=True,
        )


def differences(one, other):
    """The largest difference between two checkpoints: name of a part -> number; of the residuals, for each rank."""
    first, second = (torch.load(Path(folder, "checkpoint.pt"), weights_only=True) for folder in (one, other))
    found = {
        part: _largest(first["shared"][part], second["shared"][part]) for part in ("model", "optimizer", "batches")
    }
    for rank, (mine, theirs) in enumerate(zip(first["own"], second["own"], strict=True)):
        for part in ("residuals", "random"):
            found[f"{part} of rank {rank}"] = _largest(mine[part], theirs[part])
    return found


def _largest(one, other):
    """The largest difference between two nests of dictionaries and lists of tensors and numbers; infinite where their
    forms differ."""
    if isinstance(one, dict):
        return (
            max((_largest(one[name], other[name]) for name in one), default=0.0)
            if one.keys() == other.keys()
            else math.inf
        )
    if isinstance(one, (list, tuple)):
        return max(map(_largest, one, other), default=0.0) if len(one) == len(other) else math.inf
    if hasattr(one, "shape"):
        if one.shape != other.shape:
            return math.inf
        return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0
    if isinstance(one, (int, float)) and not isinstance(one, bool):
        return abs(one - other)
    return 0.0 if one == other else math.inf
