"""Lists of NumPy arrays in memory that the processes of one machine share, for parameters and gradients."""

import numpy

ALIGNMENT = 64  # bytes; a cache line


def allocate(context, like):
    """Return shared memory of the multiprocessing ``context`` for arrays with the shapes and dtypes of the list
    ``like``.

    It has no file, so it is freed after any end of the last process that uses it.
    """
    return context.RawArray("B", max(1, sum(_room(array) for array in like)))


def views(memory, like):
    """Return the arrays in ``memory``: a list with the shapes and dtypes of ``like``. All processes see what is written
    to them."""
    arrays, offset = [], 0
    for array in like:
        arrays.append(numpy.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape))
        offset += _room(array)
    return arrays


def _room(array):
    return -(-array.nbytes // ALIGNMENT) * ALIGNMENT
