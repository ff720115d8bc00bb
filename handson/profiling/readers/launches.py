"""Find the end of an iteration on a GPU. The host launches work and runs ahead of the GPU, so the iteration's range,
which the host marks, ends too early. All readers of profiles with kernels use this."""

from array import array

import numpy


class Launches:
    """The host's launches, and the ends of the launched work on the GPU; a correlation id connects them. Times in
    ns."""

    def __init__(self):
        self.begun, self.done = (array("q"), array("q")), (array("q"), array("q"))  # correlation ids, moments

    @property
    def on_gpu(self):
        """Return whether the GPU was used."""
        return len(self.done[0]) > 0

    def add(self, on_gpu, correlation, moment):
        for column, value in zip(self.done if on_gpu else self.begun, (correlation, moment), strict=True):
            column.append(value)

    def settle(self, begins, ends):
        """Return the begins and ends of iterations including the GPU's work, from those of the host, in order.

        An iteration ends when the host has ended it and the GPU has finished all work that was launched in it; the next
        one begins then.
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
