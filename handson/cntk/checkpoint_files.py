"""Checkpoints of the CNTK interface: one file, which is written under another name and then renamed. The previous
checkpoint stays until the next one is complete.

A checkpoint has two parts: the state that is equal on all ranks (the model), and the state of each rank (its
residuals).
"""

import contextlib
import io
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
    """Return whether there is a checkpoint to resume from."""
    return Path(path).exists() or before(path).exists()


def save(path, shared, own, comm):
    """Write a checkpoint; all ranks must call this function. When it returns, the file is complete.

    shared: the state that is equal on all ranks; own: the state of this rank; both are dictionaries of tensors and
    numbers. comm: a communicator with `rank`, `gather` and `barrier`.
    """
    everybodys = comm.gather(_on_host(own))
    if comm.rank == 0:
        with written_aside(path) as file:
            torch.save({"shared": shared, "own": everybodys}, file)
            file.flush()
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, before(path))
    comm.barrier()


def _on_host(state):
    """Return a state with its tensors on the host: another rank may not have the GPU of this one."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, map_location="cpu", weights_only=True)


def load(path, comm):
    """Return (shared, own) of this rank from the last checkpoint, or from the previous one if the last is damaged.
    Return None if there is no checkpoint. All ranks must call this function.

    comm: has `rank`, `size` and `allgather`. Raises CheckpointError if all checkpoints are damaged, or if the number of
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
                f"{problems[0]}, and no earlier checkpoint can be read: delete {path}*, and start again"
            )
        return None
    for problem in problems if comm.rank == 0 else ():
        print(f"{problem}: the checkpoint before it is used", file=sys.stderr, flush=True)
    if len(found["own"]) != comm.size:
        raise CheckpointError(
            f"the checkpoint {candidate} was written by {len(found['own'])} ranks, but this run has {comm.size}: start"
            f" {len(found['own'])} ranks, because each rank needs its own part"
        )
    return found["shared"], found["own"][comm.rank]


def _read(path):
    """Return the content of a checkpoint, or why it cannot be read, as the start of a sentence."""
    try:
        content = torch.load(path, map_location=_here, weights_only=True)
    except FileNotFoundError:
        return f"the checkpoint {path} does not exist"
    except Exception as error:  # a file that was cut off can fail in any way
        return f"the checkpoint {path} is cut off or damaged ({type(error).__name__})"
    if not isinstance(content, dict) or not isinstance(content.get("own"), list) or "shared" not in content:
        return f"the file {path} is not a checkpoint of this course"
    return content


def _here(storage, location):
    """Move tensors that were on a GPU to the GPU of this process. Others stay on the CPU, where they are needed."""
    return storage if location == "cpu" else storage.cuda()
