"""Profiles of the notebook's slow scripts, made of typical times: an answer may use `before`, which the notebook has recorded above it."""

from handson.profiling.timeline import COMMUNICATION, COMPUTE, LOADING, STEP, Builder, Run

STEPS, FIRST = 8, 12  # of a recording: how many, and the number of the first
MS = 1_000_000  # ns


def slow_loading():
    """Two ranks, which decode their images for most of a step."""
    step = [("decode", LOADING, 53), *_step(36), ("gloo:all_reduce", COMMUNICATION, 1)]
    return Run("slow_loading_before", [_timeline(rank, step) for rank in (0, 1)])


def uneven_work():
    """Two ranks; rank 0 has two thirds of the images."""
    return Run("uneven_work_before", [_timeline(rank, [*_step(images), ("gloo:all_reduce", COMMUNICATION, 98 - images)]) for rank, images in enumerate((96, 66))])


def waiting_every_step():
    """Two ranks that meet four times in a step."""
    meetings = [(f"gloo:{name}", COMMUNICATION, 1) for name in ("all_reduce", "all_gather", "all_gather", "barrier")]
    return Run("waiting_every_step_before", [_timeline(rank, [*_step(3), *meetings]) for rank in (0, 1)])


def _step(milliseconds):
    return [("convolution", COMPUTE, milliseconds), ("optimizer", COMPUTE, 1)]


def _timeline(rank, step):
    """The Timeline of a rank whose steps all consist of the same events, (name, kind, milliseconds), one after the other."""
    builder, now = Builder(), 0
    for number in range(FIRST, FIRST + STEPS):
        begin = now
        for name, kind, milliseconds in step:
            builder.add(now, now + milliseconds * MS, name, kind, "collectives" if kind == COMMUNICATION else "thread 0")
            now += milliseconds * MS
        builder.add(begin, now, f"ProfilerStep#{number}", STEP, "thread 0")
    return builder.finish(rank=rank)
