"""Lists of NumPy arrays in memory that the processes of one machine share: how parameters and gradients travel."""

import numpy

ALIGNMENT = 64  # bytes; a cache line


def allocate(context, like):
    """Shared memory of the multiprocessing ``context`` for arrays of the shapes and dtypes of the list ``like``.

    It has no file, so it is freed when the last process that uses it ends, however it ends.
    """
    return context.RawArray("B", max(1, sum(_room(array) for array in like)))


def views(memory, like):
    """The arrays in ``memory``: a list of the shapes and dtypes of ``like``. What is written to them, all processes
    see."""
    arrays, offset = [], 0
    for array in like:
        arrays.append(numpy.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape))
        offset += _room(array)
    return arrays


def _room(array):
    return -(-array.nbytes // ALIGNMENT) * ALIGNMENT
