"""When an iteration ends that a GPU works for: the host hands work to the GPU and runs ahead, so the range of an
iteration in a profile, which the host marks, ends too early. All readers of profiles with kernels use this."""

from array import array

import numpy


class Launches:
    """What the host launched, and when the GPU was done with it; both carry a correlation id. Times in ns."""

    def __init__(self):
        self.begun, self.done = (array("q"), array("q")), (array("q"), array("q"))  # correlation ids, moments

    @property
    def on_gpu(self):
        """Whether the GPU did anything."""
        return len(self.done[0]) > 0

    def add(self, on_gpu, correlation, moment):
        for column, value in zip(self.done if on_gpu else self.begun, (correlation, moment), strict=True):
            column.append(value)

    def settle(self, begins, ends):
        """The begins and ends of iterations of the host, in order, as those of host and GPU together.

        An iteration ends when the host has ended it and the GPU has done all that was launched in it; the next one
        begins then.
        """
        ids, launched = map(numpy.array, self.begun)
        order = numpy.argsort(ids)
        wanted, done = map(numpy.array, self.done)
        found = (
            order[numpy.minimum(numpy.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
            if len(ids)
            else numpy.empty(0, int)
        )
        known = ids[found] == wanted if len(ids) else slice(0)
        launched, done = launched[found][known], done[known]
        begins, ends, reached = begins.copy(), ends.copy(), 0
        for index, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            begins[index] = max(begin, reached)
            reached = ends[index] = done[(launched >= begin) & (launched < end)].max(initial=max(end, reached))
        return begins, ends
