"""What a training process does while it is recorded. `python -m handson profile` asks for it in VARIABLE.

Training scripts stay as they are: importing handson.pytorch or handson.chainer begins the recording
(`recorders.begin`), and those packages report here where steps and spans are. Where nothing is recorded, these
functions do nothing. They import neither torch nor Chainer.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "HANDSON_PROFILE"
recorder = None  # that of this process, if it is recorded


@dataclass
class Plan:
    """What to record: `steps` steps after `skip` others, with `tool` (nvprof, nsys or torch), into files in
    `folder`."""

    tool: str
    skip: int
    steps: int
    folder: Path

    def __str__(self):
        return f"{self.tool}:{self.skip}:{self.steps}:{self.folder}"


def plan():
    """The Plan in the environment, or None."""
    if not (text := os.environ.get(VARIABLE)):
        return None
    tool, skip, steps, folder = text.split(":", 3)
    return Plan(tool, int(skip), int(steps), Path(folder))


def step():
    """One step of training ends here, and the next begins."""
    if recorder:
        recorder.step()


def span(category, name):
    """``with span("communication", "all-reduce"):`` a span of time for our own recorders. category: one of
    `kinds.CATEGORIES`."""
    return recorder.span(category, name) if recorder else contextlib.nullcontext()


def note(category, name, begin, end):
    """Add a span that has ended; times in ns."""
    if recorder and recorder.state == "recording":
        recorder.add(begin, end, name, category)


def identify(rank, size=None):
    """Tell the recording which rank this process is, where no process group does."""
    if recorder:
        recorder.rank, recorder.size = rank, size or recorder.size


def forked(rank):
    """Call it in a process that was forked from a recorded one: its steps count from the start, and its rank is
    `rank`."""
    if recorder:
        recorder.ended, recorder.moments = -1, {}
    identify(rank)


def seconds_writing():
    """Seconds that this process has spent on writing a recording; they do not count as training."""
    return recorder.seconds_writing if recorder else 0


def forget_writing():
    """Another training of this process begins: what the one before has spent on writing is none of its seconds."""
    if recorder:
        recorder.seconds_writing = 0


def finish():
    """Write the rest of the recording; called when the process ends."""
    global recorder
    if recorder:
        recorder.finish()
        recorder = None
