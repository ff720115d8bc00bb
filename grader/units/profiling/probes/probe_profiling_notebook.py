"""Profiles of the notebook's slow scripts with typical times. An answer may use the profile `before`, which the
notebook has recorded above it."""

from handson.profiling.timeline import COMMUNICATION, COMPUTE, LOADING, STEP, Builder, Run
from handson.training.results import Result

STEPS, FIRST = 8, 12  # a recording has 8 steps, and the first one has number 12
IMAGES, BATCHSIZE = 1500, 32  # the images of an epoch and of a rank's step
MS = 1_000_000  # ns


def slow_loading():
    """Two ranks, which decode their images for most of a step."""
    step = [("decode", LOADING, 53), *_step(36), ("gloo:all_reduce", COMMUNICATION, 1)]
    return _run("slow_loading", [step, step], size=256, epochs=6)


def uneven_work():
    """Two ranks; rank 0 has two thirds of the images."""
    return _run(
        "uneven_work",
        [[*_step(images), ("gloo:all_reduce", COMMUNICATION, 98 - images)] for images in (96, 66)],
        size=256,
        epochs=2,
    )


def waiting_every_step():
    """Two ranks that meet three times in a step."""
    meetings = [(f"gloo:{name}", COMMUNICATION, 1) for name in ("all_reduce", "all_reduce", "barrier")]
    return _run("waiting_every_step", [[*_step(3), *meetings]] * 2, size=32, epochs=2)


def _run(script, steps, size, epochs):
    """Return a Run in which each rank repeats its step from `steps`, with the Result of the whole training run."""
    train_seconds = (
        sum(milliseconds for _, _, milliseconds in steps[0]) / 1e3 * epochs * -(-IMAGES // (BATCHSIZE * len(steps)))
    )
    result = Result(
        unit="profiling",
        script=script,
        track="pytorch",
        profiled=True,
        workers=len(steps),
        nodes=1,
        device=f"{len(steps)} virtual GPUs",
        dataset="digits",
        size=size,
        batchsize=BATCHSIZE,
        epochs=epochs,
        seed=0,
        images=IMAGES * epochs,
        seconds=1.1 * train_seconds,
        train_seconds=train_seconds,
    )
    return Run(f"{script}_before", [_timeline(rank, step) for rank, step in enumerate(steps)], result=result)


def _step(milliseconds):
    return [("convolution", COMPUTE, milliseconds), ("optimizer", COMPUTE, 1)]


def _timeline(rank, step):
    """Return the Timeline of a rank whose steps all consist of the same events, (name, kind, milliseconds), one after
    the other."""
    builder, now = Builder(), 0
    for number in range(FIRST, FIRST + STEPS):
        begin = now
        for name, kind, milliseconds in step:
            builder.add(
                now, now + milliseconds * MS, name, kind, "collectives" if kind == COMMUNICATION else "thread 0"
            )
            now += milliseconds * MS
        builder.add(begin, now, f"ProfilerStep#{number}", STEP, "thread 0")
    return builder.finish(rank=rank)
