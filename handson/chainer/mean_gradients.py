"""The mean of all ranks' gradients, with one MPI all-reduce over one buffer, either blocking or during the computation
of the next batch."""

import functools
import threading
import time

import numpy
from chainermn.communicators._memory_utility import extract_params_set_grad
from mpi4py import MPI

from handson.profiling import recording

POLL = 0.001  # seconds between two polls of an all-reduce in flight
# Measured with MPICH 5.0, two ranks of one core each, 250 ms of computation a step, 12 MB of gradients at 300 Mbit/s,
# which take 340 to 540 ms. Communication that computation did not hide: 740 ms without polls; 293 ms with a poll every
# 0.1 ms, 134 ms every 0.5 ms, 59 ms every 2 ms, 287 ms every 10 ms; 296 ms with MPICH's own thread
# (MPIR_CVAR_ASYNC_PROGRESS=1), which takes half of the core.


class MeanGradients:
    """Average the gradients of a model: call ``all_reduce()``, or ``start()`` and later ``wait()``.

    dtype: the type in which the gradients are sent and summed, or None for their own type. The division uses the
    parameters' own type. With float16, a sum above 65,504 becomes infinite, as with Chainer's pure_nccl. zero_fill:
    whether a missing gradient counts as zeros.
    """

    def __init__(self, mpi_comm, model, zero_fill, dtype=None):
        self._comm = mpi_comm
        self._gradients = []
        for parameter in extract_params_set_grad(model, zero_fill):
            if parameter.grad is None:
                parameter.grad = numpy.zeros_like(parameter.array)
            self._gradients.append(parameter.grad)
        flat = [gradient.ravel() for gradient in self._gradients] or [numpy.empty(0, numpy.float32)]
        with numpy.errstate(over="ignore"):
            self._buffer = numpy.concatenate(flat, dtype=dtype or numpy.result_type(*flat), casting="same_kind")

    def all_reduce(self):
        """Replace the gradients with their mean over all ranks."""
        self._comm.Allreduce(MPI.IN_PLACE, *_message(self._buffer))
        self._unpack()

    def start(self):
        """Start the all-reduce and return. The gradients must not change until ``wait`` has returned."""
        self._begin, self._arrived = time.time_ns(), None
        self._request = self._comm.Iallreduce(MPI.IN_PLACE, *_message(self._buffer))
        # MPI moves data only inside MPI calls. A thread that polls keeps the all-reduce running.
        self._thread = threading.Thread(target=self._poll, name="all-reduce in flight", daemon=True)
        if MPI.Query_thread() >= MPI.THREAD_MULTIPLE:
            self._thread.start()

    def wait(self):
        """Wait until the gradients are the mean over all ranks."""
        if self._thread.ident:
            self._thread.join()
        self._request.Wait()
        recording.note("communication", "mpi:all-reduce in flight", self._begin, self._arrived or time.time_ns())
        self._unpack()

    def _poll(self):
        while not self._request.Test():
            time.sleep(POLL)
        self._arrived = time.time_ns()

    def _unpack(self):
        offset = 0
        for gradient in self._gradients:
            gradient[...] = self._buffer[offset : offset + gradient.size].reshape(gradient.shape)
            gradient *= 1 / self._comm.size
            offset += gradient.size


def _message(buffer):
    """Return (the buffer, the operation) for mpi4py. If the MPI library cannot add float16, the operation is our
    own."""
    if buffer.dtype != numpy.float16 or _mpi_adds_float16():
        return buffer, MPI.SUM
    return [buffer.view(numpy.uint16), MPI.UINT16_T], _float16_sum()


@functools.cache
def _mpi_adds_float16():
    one, two = numpy.float16([1]), numpy.float16([2])
    try:
        MPI.SUM.Reduce_local(one, two)
    except (MPI.Exception, KeyError, ValueError, TypeError):  # which error depends on the MPI library and on mpi4py
        return False
    return two[0] == 3


@functools.cache
def _float16_sum():
    def add(mine, sums, datatype):
        sums = numpy.frombuffer(sums, numpy.float16)
        with numpy.errstate(over="ignore", invalid="ignore"):
            numpy.add(numpy.frombuffer(mine, numpy.float16), sums, out=sums)

    return MPI.Op.Create(add, commute=True)
