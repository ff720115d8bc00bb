"""The interface between a training process and its recorder. `python -m handson profile` requests a recording through
VARIABLE.

Training scripts need no changes: importing handson.pytorch or handson.chainer starts the recorder (`recorders.begin`),
and these packages report steps and spans here. Without a recorder, these functions do nothing. They import neither
torch nor Chainer.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "HANDSON_PROFILE"
recorder = None  # the recorder of this process, if it is recorded


@dataclass
class Plan:
    """A request to record `steps` steps after skipping `skip` steps, with `tool` (nvprof, nsys or torch), into files in
    `folder`."""

    tool: str
    skip: int
    steps: int
    folder: Path

    def __str__(self):
        return f"{self.tool}:{self.skip}:{self.steps}:{self.folder}"


def plan():
    """Return the Plan in the environment, or None."""
    if not (text := os.environ.get(VARIABLE)):
        return None
    tool, skip, steps, folder = text.split(":", 3)
    return Plan(tool, int(skip), int(steps), Path(folder))


def step():
    """Record that a training step ends and the next one begins."""
    if recorder:
        recorder.step()


def span(category, name):
    """Context manager for a span of our own recorders: ``with span("communication", "all-reduce"):``. category: one of
    `kinds.CATEGORIES`."""
    return recorder.span(category, name) if recorder else contextlib.nullcontext()


def note(category, name, begin, end):
    """Record a span that has ended; times in ns."""
    if recorder and recorder.state == "recording":
        recorder.add(begin, end, name, category)


def identify(rank, size=None):
    """Record the rank of this process, if there is no process group."""
    if recorder:
        recorder.rank, recorder.size = rank, size or recorder.size


def forked(rank):
    """Continue in a process that was forked from a recorded one: its steps count from the start, and its rank is
    `rank`."""
    if recorder:
        recorder.ended, recorder.moments = -1, {}
    identify(rank)


def seconds_writing():
    """Return the seconds that this process has spent on writing a recording, which do not count as training."""
    return recorder.seconds_writing if recorder else 0


def forget_writing():
    """Reset `seconds_writing` before another training run of this process."""
    if recorder:
        recorder.seconds_writing = 0


def finish():
    """Write the rest of the recording at the end of the process."""
    global recorder
    if recorder:
        recorder.finish()
        recorder = None
