"""Checkpoint files of CNTK training runs: written under another name and renamed; the previous one stays until the next
is complete.

A checkpoint has two parts: the state that is equal on all ranks (the model), and each rank's own state (its
residuals).
"""

import contextlib
import os
import sys
from pathlib import Path

import torch

from handson.files import written_aside
from handson.pytorch.checkpoints import CheckpointError


def before(path):
    """Return the path of the previous checkpoint."""
    return Path(f"{path}.before")


def exists(path):
    """Return whether there is a checkpoint from which a run can resume."""
    return Path(path).exists() or before(path).exists()


def save(path, shared, own, comm):
    """Write a checkpoint. All ranks must call it. shared: the state that is equal on all ranks; own: of this rank. Both
    are dictionaries of tensors and numbers.

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
    """Return (shared, own) of this rank, from the last checkpoint, or from the previous one if the last is damaged;
    None if there is none. All ranks must call it.

    comm: has `rank`, `size` and `allgather`. Raises CheckpointError if no checkpoint is complete, or if its number of
    ranks differs.
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
                f"{problems[0]}; there is no whole checkpoint before it: delete {path}*, and start again"
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
    """Return the content of a checkpoint, or why it cannot be read, as the beginning of a sentence."""
    try:
        content = torch.load(path, map_location=_here, weights_only=True)
    except FileNotFoundError:
        return f"the checkpoint {path} does not exist"
    except Exception as error:  # an incomplete file can fail in any way
        return f"the checkpoint {path} is cut off or damaged ({type(error).__name__})"
    if not isinstance(content, dict) or not isinstance(content.get("own"), list) or "shared" not in content:
        return f"the file {path} is not a checkpoint of this course"
    return content


def _here(storage, location):
    """Move tensors of a GPU to the GPU of this process; the state of a generator stays on the host, where it is
    needed."""
    return storage if location == "cpu" else storage.cuda()
