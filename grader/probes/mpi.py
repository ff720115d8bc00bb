"""mpi4py's communicator among the ranks of a check, as a student's code may use it: over gloo, since MPI can't be
started in forked processes."""

import functools
import itertools
import operator
import pickle

import numpy
import torch.distributed as dist

from grader.probes.communicator import MPI, Group, NotThere, play_mpi
from grader.sandbox.rank import StudentMistake


class World(Group):
    """The methods of mpi4py's communicators that a student may choose from. Messages between two ranks lie in the store
    of the process group until they are fetched: MPI, too, does not keep the sender of a small message waiting, except
    in ssend and its like."""

    numbers = itertools.count()

    def __init__(self, rank, ranks, group=None):
        super().__init__(rank, ranks, group)
        self._store = dist.PrefixStore(
            f"world {next(World.numbers)} of {[*ranks]}", dist.distributed_c10d._get_default_store()
        )
        if group is None:
            play_mpi(self)
            MPI.Request, MPI.Op = Request, Operation
        # (source, tag, object) of the messages that nobody has asked for yet; how many were fetched
        self._come, self._fetched = [], 0

    def send(self, obj, dest, tag=0):
        number = self._store.add(f"number for {dest}", 1)
        self._store.set(f"{number} for {dest}", pickle.dumps((self.rank, tag, obj, number)))
        return number

    def recv(self, buf=None, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=None):
        def wanted(message):
            return source in (message[0], MPI.ANY_SOURCE) and tag in (message[1], MPI.ANY_TAG)

        while not any(map(wanted, self._come)):
            self._fetched += 1
            self._come.append(pickle.loads(self._store.get(f"{self._fetched} for {self.rank}")))
        sender, its_tag, obj, number = self._come.pop(
            next(place for place, message in enumerate(self._come) if wanted(message))
        )
        self._store.set(f"{number} for {self.rank} is there", "")
        if status is not None:
            status.source, status.tag = sender, its_tag
        return obj

    def sendrecv(self, sendobj, dest, sendtag=0, recvbuf=None, source=MPI.ANY_SOURCE, recvtag=MPI.ANY_TAG, status=None):
        self.send(sendobj, dest, sendtag)
        return self.recv(recvbuf, source, recvtag, status)

    def isend(self, obj, dest, tag=0):
        self.send(obj, dest, tag)
        return Request(lambda: None)

    def irecv(self, buf=None, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG):
        return Request(lambda: self.recv(buf, source, tag))

    def ssend(self, obj, dest, tag=0):
        self.issend(obj, dest, tag).wait()

    def issend(self, obj, dest, tag=0):
        number = self.send(obj, dest, tag)
        return Request(lambda: self._store.get(f"{number} for {dest} is there") and None)

    bsend, ibsend = send, isend

    def bcast(self, obj, root=0):
        return self.allgather(obj, f"bcast(root={root})")[root]

    def scan(self, sendobj, op=operator.add):
        return functools.reduce(op, self.allgather(sendobj, "scan")[: self.rank + 1])

    def exscan(self, sendobj, op=operator.add):
        before = self.allgather(sendobj, "exscan")[: self.rank]
        return functools.reduce(op, before) if before else None

    def Free(self):
        pass

    def Send(self, buf, dest, tag=0):
        self.send(_array(buf).copy(), dest, tag)

    def Isend(self, buf, dest, tag=0):
        self.Send(buf, dest, tag)
        return Request(lambda: None)

    def Ssend(self, buf, dest, tag=0):
        self.ssend(_array(buf).copy(), dest, tag)

    def Issend(self, buf, dest, tag=0):
        return self.issend(_array(buf).copy(), dest, tag)

    Bsend, Ibsend = Send, Isend

    def Recv(self, buf, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=None):
        _fill(buf, self.recv(None, source, tag, status))

    def Sendrecv(self, sendbuf, dest, sendtag=0, recvbuf=None, source=MPI.ANY_SOURCE, recvtag=MPI.ANY_TAG, status=None):
        self.Send(sendbuf, dest, sendtag)
        self.Recv(recvbuf, source, recvtag, status)

    def Sendrecv_replace(self, buf, dest, sendtag=0, source=MPI.ANY_SOURCE, recvtag=MPI.ANY_TAG, status=None):
        self.Sendrecv(buf, dest, sendtag, buf, source, recvtag, status)

    def Bcast(self, buf, root=0):
        _fill(buf, self.bcast(_array(buf), root))

    def Allgather(self, sendbuf, recvbuf):
        _fill(recvbuf, self.allgather(self._part(sendbuf, recvbuf), "Allgather"))

    def Gather(self, sendbuf, recvbuf, root=0):
        parts = self.gather(self._part(sendbuf, recvbuf), root)
        if self.rank == root:
            _fill(recvbuf, parts)

    def _part(self, sendbuf, recvbuf):
        """What this rank gives to a table of all ranks' numbers: with MPI.IN_PLACE, what stands at its place there."""
        return (
            numpy.split(_array(recvbuf).ravel(), self.size)[self.rank]
            if sendbuf is MPI.IN_PLACE
            else _array(sendbuf).ravel()
        )

    def Allreduce(self, sendbuf, recvbuf, op=MPI.SUM):
        _fill(recvbuf, self._sum(sendbuf, recvbuf, op, "Allreduce"))

    def Scan(self, sendbuf, recvbuf, op=MPI.SUM):
        _fill(recvbuf, self.scan(_array(recvbuf if sendbuf is MPI.IN_PLACE else sendbuf).copy(), op))

    def Scatter(self, sendbuf, recvbuf, root=0):
        parts = self.bcast(_array(sendbuf) if self.rank == root else None, root)
        _fill(recvbuf, numpy.split(parts.ravel(), self.size)[self.rank])

    def Alltoall(self, sendbuf, recvbuf):
        _fill(recvbuf, numpy.concatenate(self.alltoall(numpy.split(_array(sendbuf).ravel(), self.size))))

    def Reduce(self, sendbuf, recvbuf, op=MPI.SUM, root=0):
        total = self._sum(sendbuf, recvbuf, op, f"Reduce(root={root})")
        if self.rank == root:
            _fill(recvbuf, total)

    def _sum(self, sendbuf, recvbuf, op, called):
        if isinstance(op, Operation):
            raise StudentMistake(
                "an operation of your own is known here, where ranks have no MPI, for allreduce, reduce and scan alone"
            )
        if op != MPI.SUM:
            raise StudentMistake("an accuracy of all ranks needs sums over the ranks, MPI.SUM")
        sent = _array(recvbuf if sendbuf is MPI.IN_PLACE else sendbuf)
        if sendbuf is not MPI.IN_PLACE and recvbuf is not None and numpy.shares_memory(sent, _array(recvbuf)):
            raise StudentMistake(
                f"`{called.partition('(')[0]}` gets one array to send and to receive, which MPI forbids: MPI.IN_PLACE"
                " in place of the first one says so"
            )
        everybodys = self.allgather(sent, called)
        return sum(everybodys[1:], everybodys[0])

    def alltoall(self, sendobj):
        return [parts[self.rank] for parts in self.allgather(sendobj, "alltoall")]

    def __getattr__(self, name):
        if name.startswith("I") and hasattr(World, name[1:].capitalize()):  # Iallreduce and its like
            method = getattr(self, name[1:].capitalize())
            # what nobody waits for is not there
            return lambda *arguments, **options: Request(lambda: method(*arguments, **options))
        raise StudentMistake(
            f"`comm.{name}` is not known here, where ranks have no MPI: use allreduce, allgather, gather, bcast,"
            " reduce, send or recv"
        )


def _array(buffer):
    """A buffer as mpi4py takes it, such as an array or [array, MPI.DOUBLE], as an array of NumPy that shares its
    memory. Raises Wrong."""
    array, *said = buffer if isinstance(buffer, (list, tuple)) else (buffer,)
    try:
        memoryview(array)
    except TypeError:
        raise StudentMistake(
            f"a method of `comm` with a capital letter gets {buffer!r:.40} in place of an array: it takes NumPy's;"
            " those with small letters take numbers"
        ) from None
    array = numpy.asarray(array)
    for kind in (one.typechar for one in said if isinstance(one, MPI.Datatype)):
        if numpy.dtype(kind) != array.dtype:
            raise StudentMistake(
                f"a buffer of {array.dtype} is said to hold {numpy.dtype(kind)}: MPI would take its bits for such"
                " numbers"
            )
    return array


def _fill(buffer, numbers):
    """Put numbers into a buffer of the same type. Raises Wrong."""
    array, numbers = _array(buffer), numpy.asarray(numbers)
    if array.dtype != numbers.dtype or array.size < numbers.size:
        raise StudentMistake(
            f"a buffer of {array.size} {array.dtype} is to receive {numbers.size} {numbers.dtype}: both need the same"
            " type and length"
        )
    array.flat[: numbers.size] = numbers.ravel()


class Operation:
    """In place of MPI.Op, for a function of a student's own. Of two objects mpi4py calls it with a third argument, as
    for two buffers."""

    def __init__(self, function, commute=False):
        self._function = function

    @classmethod
    def Create(cls, function, commute=False):
        return cls(function)

    def __call__(self, one, other):
        return self._function(one, other, None)

    def Free(self):
        pass


class Known(type):
    def __getattr__(cls, name):
        raise NotThere(f"`MPI.Request.{name}` is not known here, where ranks have no MPI: use wait, or waitall")


class Request(metaclass=Known):
    """What isend, irecv and Iallreduce return."""

    def __init__(self, finish):
        self._finish, self._asked = finish, False

    def wait(self, status=None):
        return self._finish()

    def test(self, status=None):
        """At first it is not done: whether it would be is a matter of chance."""
        self._asked, before = True, self._asked
        return (True, self._finish()) if before else (False, None)

    Wait = wait

    def Test(self, status=None):
        return self.test()[0]

    @staticmethod
    def waitall(requests, statuses=None):
        return [request.wait() for request in requests]

    @staticmethod
    def testall(requests, statuses=None):
        asked = [request._asked for request in requests]
        for request in requests:
            request._asked = True
        return (True, Request.waitall(requests)) if all(asked) else (False, None)

    @staticmethod
    def Testall(requests, statuses=None):
        return Request.testall(requests)[0]

    @staticmethod
    def Waitall(requests, statuses=None):
        Request.waitall(requests)
        return True
