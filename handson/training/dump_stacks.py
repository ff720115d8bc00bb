"""Find where a process waits, in a stack that faulthandler has written: the collective, and the line of the user's own
code.

Runs use it for ranks that make no progress, and the grader for ranks that hang.
"""

import os
import re

FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d{1,9}) in (?P<function>\S+)', re.MULTILINE)
COLLECTIVES = (  # files whose functions are collectives, as the ends of their names
    "torch/distributed/distributed_c10d.py",
    "chainermn/communicators/mpi_communicator_base.py",
    "chainermn/datasets/scatter.py",
    "handson/chainer/communicators.py",
    "handson/chainer/evaluators.py",
    "handson/training/all_ranks.py",
)
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# parts of the paths of other code: Python's own, libraries and the course
OTHERS = (os.path.dirname(os.__file__), "/site-packages/", "/dist-packages/", PACKAGE + os.sep)


def where(text, is_own, collectives=COLLECTIVES):
    """Return (the collective in which a thread waits, "" if none; (file, line) of the innermost own code, None if no
    thread is in it).

    text: the stacks of one or more threads. is_own(file) returns whether a file is the user's own code.
    """
    waiting, own = "", None
    for thread in re.split(r"\n(?=(?:Current thread|Thread) )", text):
        frames = [match.groupdict() for match in FRAME.finditer(thread)]
        waiting = waiting or _collective(frames, collectives)
        own = own or next(((frame["file"], int(frame["line"])) for frame in frames if is_own(frame["file"])), None)
    return waiting, own


def is_own_code(file):
    """Return whether a file belongs neither to a library, nor to Python, nor to the course."""
    return not file.startswith("<") and not any(part in file for part in OTHERS)


def words(text):
    """Return where a rank waits, as the rest of a sentence: "it waits in train.py, line 61, in all_reduce"."""
    if not text:
        return "it does not answer"
    waiting, own = where(text, is_own_code)
    if own:
        file, line = own
        place = f"{os.path.basename(file)}, line {line}"
        return f"it waits in {place}, in {waiting}" if waiting else f"it is in {place}"
    if waiting:
        return "it has reached the end of its script, and waits for the other ranks"
    return "it is not in its script"


def _collective(frames, collectives):
    """Return the collective in these frames, or "": the library's outermost function, whose name users know."""
    named = [
        frame["function"]
        for frame in frames
        if frame["file"].endswith(collectives) and not frame["function"].startswith(("_", "wrapper"))
    ]
    if named:
        return named[-1]
    if any(frame["file"].endswith("torch/autograd/graph.py") for frame in frames):
        return "the all-reduce of the gradients (backward)"
    if any("torch/nn/parallel/distributed.py" in frame["file"] for frame in frames):
        return "DistributedDataParallel (its start compares the replicas)"
    return ""
