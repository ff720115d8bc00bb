"""Marks on samples, by which they are told wherever they turn up. Nobody can name those of images that were never looked at."""

import numpy

from grader.box.rank import Wrong


def marks(samples, seed, most=1 << 24):
    """A number below `most` for each of some samples, as (samples,) integers; float32 holds those below 2^24 exactly."""
    return numpy.random.default_rng(seed).choice(most, samples, replace=False)


def told(found, samples, seed):
    """Which samples have the marks `found`, by their numbers. Raises Wrong where one has none of the marks that there are."""
    number = {int(mark): sample for sample, mark in enumerate(marks(samples, seed))}
    found = [float(mark) for mark in found]
    if strange := [mark for mark in found if mark not in number]:
        raise Wrong(f"{len(strange)} of {len(found)} images are none of the data set's, or have been changed")
    return [number[mark] for mark in found]
