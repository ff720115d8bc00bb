"""Point-to-point messages that are counted, for collectives from scratch, and the bytes that communication hooks send
(unit communication).

`send` is ``dist.isend``, `expect` is ``dist.irecv``: both only start an operation, and return a handle with a
``wait()``.
"""

import time
from collections import Counter
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from handson.errors import OneSentence

sent = Counter()  # "messages" and "bytes" that this rank has sent
waited = Counter()  # "seconds" for which this rank has waited for messages of others
longest = 0  # numbers in the longest message of an all-reduce while the lengths of messages are compared, else 0
UNTOUCHED = 0xA5  # each octet of a buffer before a message arrives: hardly any number ends in four of these


class NoPartner(OneSentence):
    """A rank sends to itself, or to a rank that does not exist, or receives from one."""


class WrongLength(OneSentence):
    """A message is longer or shorter than its receiver expects."""


def send(tensor, to, tag=0):
    """Start to send a tensor to a rank. Call ``wait()`` on the returned handle before you change the tensor. tag: an
    integer; the receiver gives the same tag, and may receive messages with different tags in any order."""
    _compare_ranks("sends to", to)
    sent.update(messages=1, bytes=tensor.numel() * tensor.element_size())
    return dist.isend(tensor.contiguous(), to, tag=tag)


def expect(like, source, tag=0):
    """Start to receive a tensor from rank `source`, with the shape and type of `like`. ``wait()`` on the returned
    handle blocks until the tensor has arrived, and returns it.

    If two ranks send to each other, both should call `expect` first: gloo uses both directions at once only if the
    receiver is already receiving.
    """
    _compare_ranks("receives from", source)
    return Expected(torch.empty_like(like, memory_format=torch.contiguous_format), source, tag)


def _compare_ranks(does, other):
    """Raise NoPartner if this rank cannot exchange messages with rank `other`, for which gloo has no sentence."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if other == rank:
        raise NoPartner(f"rank {rank} {does} itself: the other rank of a message is a different one")
    if isinstance(other, int) and not 0 <= other < size:
        raise NoPartner(f"rank {rank} {does} rank {other}, which does not exist: the ranks are 0 to {size - 1}")


class Expected:
    """A tensor that is being received."""

    def __init__(self, tensor, source, tag):
        self.tensor, self.source = tensor, source
        self.buffer = _untouched(tensor) if longest else tensor
        self.work = dist.irecv(self.buffer, source, tag=tag)

    def wait(self):
        begin = time.perf_counter()
        self.work.wait()
        waited["seconds"] += time.perf_counter() - begin
        if self.buffer is not self.tensor:
            self._compare(_arrived(self.buffer))
            self.tensor.copy_(self.buffer[: self.tensor.numel()].view_as(self.tensor))
        return self.tensor

    def _compare(self, numbers):
        if numbers != self.tensor.numel():
            cure = "all ranks need the same length, and both sides the same part"
            raise WrongLength(
                f"expects {self.tensor.numel()} numbers from rank {self.source}, which sends {numbers}: {cure}"
            )


def receive(like, source, tag=0):
    """Block until a tensor from rank `source` has arrived, with the shape and type of `like`, and return it."""
    return expect(like, source, tag).wait()


@contextmanager
def lengths_compared(numbers):
    """Context manager that compares the length of every expected message. numbers: the largest number of elements of a
    message.

    gloo aborts a process that receives more than its buffer holds. So the buffer is larger than needed, and the part
    that is written shows the length of the message. The messages and their times are unchanged.
    """
    global longest
    longest = numbers
    try:
        yield
    finally:
        longest = 0


def _untouched(like):
    """Return a buffer with the type of `like`, for its elements or the `longest` message."""
    buffer = torch.empty(max(like.numel(), longest), dtype=like.dtype, device=like.device)
    buffer.view(torch.uint8).fill_(UNTOUCHED)
    return buffer


def _arrived(buffer):
    """Return how many elements a message has written to an `_untouched` buffer."""
    octets = buffer.view(torch.uint8).view(len(buffer), -1)
    written = (octets != UNTOUCHED).any(dim=1).nonzero()
    return written[-1].item() + 1 if len(written) else 0


def pack(flags):
    """Pack booleans (n) into bits, on their device: uint8 (n / 8, rounded up)."""
    octets = F.pad(flags.to(torch.uint8), (0, -len(flags) % 8)).view(-1, 8)
    return (octets << _places(octets)).sum(dim=1, dtype=torch.uint8)


def unpack(bits, count):
    """Return the first `count` booleans of a result of `pack`."""
    return (bits[:, None] >> _places(bits) & 1).flatten()[:count].bool()


def _places(bits):
    """Return the positions of the bits of a byte, on the device of `bits`."""
    return torch.arange(8, dtype=torch.uint8, device=bits.device)


def gather(tensors):
    """Return every rank's `tensors`, which have the same shapes and types on all ranks, as a list with a list per rank.
    Each tensor is one message."""
    mine = torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors])
    everybodys = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, mine)
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    return [
        [part.clone().view(tensor.dtype).view_as(tensor) for part, tensor in zip(one.split(sizes), tensors)]
        for one in everybodys
    ]


def done(tensor):
    """Return a future that already contains `tensor`, as a communication hook must return it."""
    future = torch.futures.Future(devices=[tensor.device] if tensor.is_cuda else None)
    future.set_result(tensor)
    return future


class AllGradients:
    """The gradients of all parameters in the form of a communication hook's argument: one bucket, which never
    changes."""

    def __init__(self, parameters):
        self.gradients = parameters_to_vector(parameter.grad for parameter in parameters)

    def buffer(self):
        return self.gradients

    def index(self):
        return 0


def average_gradients(model, hook, state):
    """Replace the gradients of `model`, after backward, with the result of a communication hook.

    DistributedDataParallel does this bucket by bucket, but rebuilds its buckets after its first step: a residual that a
    hook has kept would belong to other gradients after a restart.
    """
    parameters = list(model.parameters())
    mean = hook(state, AllGradients(parameters)).wait()
    vector_to_parameters(mean, [parameter.grad for parameter in parameters])
