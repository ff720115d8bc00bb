"""Marks that identify samples. They are random, so code cannot report a sample's mark without reading the sample."""

import numpy

from grader.sandbox.rank import StudentMistake


def marks(samples, seed, most=1 << 24):
    """Return a different number below `most` for each sample, as (samples,) integers; float32 represents integers below
    2^24 exactly."""
    return numpy.random.default_rng(seed).choice(most, samples, replace=False)


def mark(image):
    """Return the mark of an image, which is the value of all its numbers; -1, which is not a mark, if they differ."""
    numbers = numpy.asarray(image).ravel()
    return numbers[0] if numbers.size and (numbers == numbers[0]).all() else -1


def samples_of(found, samples, seed, tests=0):
    """Return the numbers of the samples that have the marks `found`. Raises StudentMistake if one of these is not a
    sample's mark. tests: the number of test images, if these have the marks of the next seed."""
    number = {int(mark): sample for sample, mark in enumerate(marks(samples, seed))}
    found = [float(mark) for mark in found]
    if strange := [mark for mark in found if mark not in number]:
        if set(strange) <= set(map(float, marks(tests, seed + 1))):
            raise StudentMistake(f"{len(strange)} of {len(found)} images are from the test set")
        raise StudentMistake(f"{len(strange)} of {len(found)} images are not in the data set, or have been changed")
    return [number[mark] for mark in found]
