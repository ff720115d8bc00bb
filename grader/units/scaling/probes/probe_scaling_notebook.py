"""Typical values for the measurements that the notebook makes above `prediction_16`, because an answer may use them."""

from types import SimpleNamespace

import numpy


def single():
    """Return the run of one worker."""
    return _run("single_gpu", 1, numpy.linspace(0.05, 0.08, 60))


def two():
    """Return the run of two workers. Its steps take longer than the slowest of two and the bytes of a ring explain."""
    return _run("rehearse", 2, numpy.linspace(0.15, 0.19, 20))


def four():
    """Return the run of four workers."""
    return _run("rehearse", 4, numpy.linspace(0.17, 0.21, 20))


def rate():
    """Return 50 Mbit/s in bytes per second, without headers."""
    return 50e6 / 8 * 0.956


def _run(name, workers, steps):
    """Return the fields of a handson.scaling.measured_runs.Run that an answer may use. (The module itself imports
    many others.) steps: seconds."""
    return SimpleNamespace(
        name=name, workers=workers, batchsize=32, steps=steps, step=float(steps.mean()), parameters=100_000
    )
