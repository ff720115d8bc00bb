"""ChainerMN among the ranks of a check: its communicator for CPUs, through gloo, because MPI cannot start in forked
processes."""

import functools
import operator

import mpi4py
import numpy
import torch
import torch.distributed as dist

mpi4py.rc.initialize = False  # importing ChainerMN would start MPI in the process from which ranks are forked

import handson.chainer  # noqa: F401, E402  before chainermn: lets it run on today's NumPy
import chainermn  # noqa: E402
from mpi4py import MPI  # noqa: E402

from grader.sandbox.rank import StudentMistake  # noqa: E402
from grader.probes import pytorch_scripts  # noqa: E402
from handson.chainer import communicators  # noqa: E402


def join(rank, ranks, ranks_per_node=None, in_turn=False):
    """Form a group of the ranks that started together, and return this rank's communicator.

    Every rank gets another random seed, as in real runs. ranks_per_node: fewer than `ranks` if the ranks represent
    several nodes; in_turn: consecutive ranks are on different nodes.
    """
    pytorch_scripts.join(rank, ranks, ranks_per_node, in_turn)
    numpy.random.seed(1000 + rank)
    MPI.COMM_WORLD = Group(rank, range(ranks))  # student code may create a communicator from it
    communicator = communicators.CpuCommunicator(MPI.COMM_WORLD)
    communicator.name = "naive"
    for module in (chainermn, communicators):
        module.create_communicator = lambda *arguments, **options: communicator
    return communicator


class NotThere(StudentMistake, AttributeError):
    """A missing method: a sentence for the student, which `hasattr` also recognises."""


class Group:
    """The methods of mpi4py's communicators that ChainerMN uses, with the same names and arguments."""

    def __init__(self, rank, ranks, group=None):
        """Create a communicator. ranks: the members' numbers in the process group of all ranks; group: their own
        process group, if they are not all ranks."""
        self.rank, self.size, self._ranks, self._group = rank, len(ranks), ranks, group

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def Split(self, color=0, key=0):
        colors, mine = self.allgather((color, key)), MPI.COMM_NULL
        for one in sorted({color for color, _ in colors} - {MPI.UNDEFINED}):
            members = [
                rank for _, rank in sorted((key, rank) for rank, (other, key) in enumerate(colors) if other == one)
            ]
            group = dist.new_group([self._ranks[rank] for rank in members], use_local_synchronization=True)
            if one == color:
                mine = type(self)(members.index(self.rank), [self._ranks[rank] for rank in members], group)
        return mine

    def bcast(self, obj, root=0):
        box = [obj]
        dist.broadcast_object_list(box, self._ranks[root], self._group)
        return box[0]

    def allgather(self, sendobj):
        everybodys = [None] * self.size
        dist.all_gather_object(everybodys, sendobj, self._group)
        return everybodys

    def gather(self, sendobj, root=0):
        everybodys = self.allgather(sendobj)
        return everybodys if self.rank == root else None

    def scatter(self, sendobj, root=0):
        return self.bcast(sendobj, root)[self.rank]

    def allreduce(self, sendobj, op=operator.add):  # an operation of MPI is also callable
        return functools.reduce(op, self.allgather(sendobj))

    def send(self, obj, dest, tag=0):
        dist.send_object_list([obj], self._ranks[dest])

    def recv(self, source, tag=0, status=None):
        box = [None]
        dist.recv_object_list(box, self._ranks[source])
        return box[0]

    def barrier(self):
        dist.barrier(self._group)

    Barrier = barrier

    def Bcast(self, buffer, root=0):  # mpi4py's methods with a capital letter take arrays or bytes
        array = buffer if isinstance(buffer, numpy.ndarray) else numpy.frombuffer(buffer, "uint8")
        dist.broadcast(
            torch.from_numpy(array if array.flags.writeable else array.copy()), self._ranks[root], self._group
        )

    def Allreduce(self, sent, received, op=MPI.SUM):
        if isinstance(sent, numpy.ndarray):  # otherwise MPI.IN_PLACE
            received[...] = sent
        dist.all_reduce(torch.from_numpy(received), group=self._group)

    def Dup(self):
        return self

    def __getattr__(self, name):
        raise NotThere(
            f"`comm.mpi_comm.{name}` is not available in a check, whose ranks have no MPI: use the methods of `comm`,"
            " such as bcast_obj and allreduce_obj"
        )
