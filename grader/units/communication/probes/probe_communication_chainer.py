"""Probes of half_and_late.py, Chainer: they run a student's communicator and optimizer, over gloo instead of MPI."""

from types import SimpleNamespace
from unittest import mock

import handson.chainer  # noqa: F401  before chainer: lets it run on today's NumPy
import chainer
import chainermn
import mpi4py.MPI
import numpy
import torch
import torch.distributed as dist

from grader.sandbox.rank import StudentMistake
from grader.probes.gloo_for_chainermn import Group, join
from grader.probes.script import Script
from handson.chainer import communicators, mean_gradients
from handson.words import a_kind

IN_PLACE = "in place"
MPI = SimpleNamespace(IN_PLACE=IN_PLACE, Query_thread=lambda: 0, THREAD_MULTIPLE=3)  # no thread that polls


class Counting(Group):
    """A group that counts the bytes of its all-reduces, and the all-reduces that were not waited for."""

    bytes, under_way = 0, 0

    def Allreduce(self, sent, received):
        self.bytes += received.nbytes
        super().Allreduce(None, received)

    def Iallreduce(self, sent, received):
        self.under_way += 1
        self.bytes += received.nbytes
        work = dist.all_reduce(torch.from_numpy(received), async_op=True)
        return SimpleNamespace(Wait=lambda: self._arrived(work), Test=work.is_completed)

    def _arrived(self, work):
        work.wait()
        self.under_way -= 1


class Vectors(chainer.Link):
    """A link whose parameters have these lengths."""

    def __init__(self, lengths, seed, dtype="float32"):
        super().__init__()
        random = numpy.random.RandomState(seed)
        with self.init_scope():
            for number, length in enumerate(lengths):
                setattr(self, f"vector{number}", chainer.Parameter(random.normal(size=length).astype(dtype)))

    def set_gradients(self, numbers):
        for _, parameter in sorted(self.namedparams()):
            parameter.grad, numbers = numbers[: parameter.size].astype(parameter.dtype), numbers[parameter.size :]

    def flat(self, what="array"):
        return numpy.concatenate([getattr(parameter, what) for _, parameter in sorted(self.namedparams())])


def gradients(case, rank, update=0):
    return numpy.random.RandomState((case["seed"] + 31 * rank + 7919 * update) % 2**32).normal(
        size=sum(case["lengths"])
    )


def _ranks(rank, ranks):
    """Return (the group of all ranks, the names that are replaced while a student's code runs)."""
    join(rank, ranks)
    group = Counting(rank, range(ranks))

    def create_communicator(communicator_name="hierarchical", mpi_comm=None, allreduce_grad_dtype=None):
        communicators.choose(communicator_name, allreduce_grad_dtype)  # raises TrackError for an unknown name or type
        return communicators.CpuCommunicator(mpi_comm or group, allreduce_grad_dtype)

    replaced = (
        (communicators, "create_communicator", create_communicator),
        (chainermn, "create_communicator", _only_for_gpus),
        (mpi4py.MPI, "COMM_WORLD", group),
    )
    return group, (*Script.replaced, *replaced)


def _only_for_gpus(*arguments, **options):
    raise StudentMistake(
        "your code calls ChainerMN's own create_communicator, which converts gradients only on GPUs: use the"
        " create_communicator that this file imports"
    )


def _without_mpi():
    """Return a context manager in which the course's all-reduces run over a Counting group."""
    return mock.patch.multiple(mean_gradients, MPI=MPI, _message=lambda buffer: (buffer,))


def half(rank, ranks, source, case):
    """Return the gradients of a rank after the communicator half(case["dtype"]) has averaged them, and the bytes that
    this rank passed to all-reduces."""
    group, replaced = _ranks(rank, ranks)
    comm = Script(source, {}, replaced=replaced, function="half").run(lambda names: None, case["dtype"])
    if not isinstance(comm, communicators.CpuCommunicator):
        raise StudentMistake(f"`comm` should be a communicator, but it is {a_kind(comm)}")
    model = Vectors(case["lengths"], case["seed"], case.get("of", "float32"))
    model.set_gradients(gradients(case, rank))
    group.bytes = 0
    with _without_mpi():
        comm.multi_node_mean_grad(model)
    return {"gradients": model.flat("grad").astype(float), "sent": group.bytes}


def late(rank, ranks, source, case):
    """Return the parameters after each update of late()'s optimizer, the number of all-reduces in flight after each
    update, and the bytes that this rank passed to all-reduces."""
    group, replaced = _ranks(rank, ranks)
    comm = communicators.CpuCommunicator(group, case.get("dtype"))
    optimizer = Script(source, {}, replaced=replaced, function="late").run(
        lambda names: None, chainer.optimizers.SGD(case["lr"]), comm
    )
    if not hasattr(optimizer, "update"):
        raise StudentMistake(f"`optimizer` should be an optimizer, but it is {a_kind(optimizer)}")
    model, trace, under_way = Vectors(case["lengths"], case["seed"] + rank), [], []
    optimizer.setup(model)
    with _without_mpi():
        for update in range(case["updates"]):
            model.set_gradients(gradients(case, rank, update))
            optimizer.update()
            trace.append(model.flat().astype(float))
            under_way.append(group.under_way)
        if group.under_way:
            optimizer.wait()
    return {"parameters": numpy.stack(trace), "under way": under_way, "sent": group.bytes}
