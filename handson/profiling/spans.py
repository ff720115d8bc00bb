"""Sets of moments: sorted spans without overlaps, as an int64 array (n, 2) of begins and ends in ns."""

import numpy

NOTHING = numpy.empty((0, 2), numpy.int64)


def union(begins, ends):
    """Return the moments in any of the spans [begin, end), which may overlap and have any order."""
    keep = ends > begins
    begins, ends = begins[keep], ends[keep]
    if not len(begins):
        return NOTHING
    order = numpy.argsort(begins, kind="stable")
    begins, reached = begins[order], numpy.maximum.accumulate(ends[order])
    first = numpy.flatnonzero(numpy.r_[True, begins[1:] > reached[:-1]])
    return numpy.stack([begins[first], reached[numpy.r_[first[1:] - 1, len(begins) - 1]]], axis=1)


def both(one, other):
    """Return the moments that are in both sets."""
    if not len(one) or not len(other):
        return NOTHING
    # the first span of `other` that ends after each of `one` begins
    first = numpy.searchsorted(other[:, 1], one[:, 0], "right")
    counts = numpy.maximum(numpy.searchsorted(other[:, 0], one[:, 1], "left") - first, 0)
    mine = numpy.repeat(numpy.arange(len(one)), counts)
    theirs = (
        numpy.arange(counts.sum()) - numpy.repeat(numpy.cumsum(counts) - counts, counts) + numpy.repeat(first, counts)
    )
    return numpy.stack(
        [numpy.maximum(one[mine, 0], other[theirs, 0]), numpy.minimum(one[mine, 1], other[theirs, 1])], axis=1
    )


def without(one, other):
    """Return the moments of `one` that are not in `other`."""
    if not len(one) or not len(other):
        return one
    edges = numpy.r_[one[0, 0] - 1, other.ravel(), max(one[-1, 1], other[-1, 1]) + 1]
    return both(one, edges.reshape(-1, 2)[edges[1::2] > edges[::2]])


def either(*sets):
    """Return the moments in any of several sets."""
    joined = numpy.concatenate([NOTHING, *sets])
    return union(joined[:, 0], joined[:, 1])


def length(spans):
    """Return the total length of a set in ns."""
    return int((spans[:, 1] - spans[:, 0]).sum())
