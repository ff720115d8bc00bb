"""Finds where a rank hangs, in the stacks that faulthandler wrote: the collective, and the line of the student's code."""

import re

FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d{1,9}) in (?P<function>\S+)', re.MULTILINE)
STUDENT = "student:"  # compiled student code has file names that begin with this
COLLECTIVES = (
    "torch/distributed/distributed_c10d.py",
    "grader/probes/communicator.py",
    "chainermn/communicators/mpi_communicator_base.py",
    "chainermn/datasets/scatter.py",
    "handson/chainer/communicators.py",
)


def where(text):
    """(the collective in which a thread waits, "" if none; the innermost line of the student's code, None if no thread is in it)."""
    waiting, line = "", None
    for thread in re.split(r"\n(?=(?:Current thread|Thread) )", text):
        frames = [match.groupdict() for match in FRAME.finditer(thread)]
        if not waiting:
            waiting = _collective(frames)
        if line is None:
            line = next((int(frame["line"]) for frame in frames if frame["file"].startswith(STUDENT)), None)
    return waiting, line


def _collective(frames):
    """The collective in these frames, or "": the outermost function of the library, which is the name that students know."""
    named = [frame["function"] for frame in frames if frame["file"].endswith(COLLECTIVES) and not frame["function"].startswith(("_", "wrapper"))]
    if named:
        return named[-1]
    if any(frame["file"].endswith("torch/autograd/graph.py") for frame in frames):
        return "the all-reduce of the gradients (backward)"
    if any("torch/nn/parallel/distributed.py" in frame["file"] for frame in frames):
        return "DistributedDataParallel (its start compares the replicas)"
    return ""
