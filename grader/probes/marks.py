"""Marks by which samples are recognised. They are drawn at random, so code can't report a sample's mark without reading the sample."""

import numpy

from grader.box.rank import Wrong


def marks(samples, seed, most=1 << 24):
    """A different number below `most` for each sample, as (samples,) integers; float32 holds integers below 2^24 exactly."""
    return numpy.random.default_rng(seed).choice(most, samples, replace=False)


def told(found, samples, seed):
    """The numbers of the samples that have the marks `found`. Raises Wrong if one of these is no sample's mark."""
    number = {int(mark): sample for sample, mark in enumerate(marks(samples, seed))}
    found = [float(mark) for mark in found]
    if strange := [mark for mark in found if mark not in number]:
        raise Wrong(f"{len(strange)} of {len(found)} images are none of the data set's, or have been changed")
    return [number[mark] for mark in found]
