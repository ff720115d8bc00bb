"""Point-to-point messages that are counted, for collectives and pipelines written from scratch, and tensors as such
messages (units communication and model_parallel)."""

import time
from collections import Counter
from contextlib import contextmanager

import numpy
import torch
import torch.distributed as dist

from handson.errors import OneSentence

sent = Counter()  # "messages" and "bytes" that this rank has sent
waited = Counter()  # "seconds" for which this rank has waited for messages of others
lengths = None  # a Lengths, while an all-reduce is checked


class WrongLength(OneSentence):
    """A message that is longer or shorter than its receiver expects."""


class Lengths:
    """Lets the receiver of each message compare its length, through the ranks' store: gloo would abort a process that
    receives too much."""

    def __init__(self, store, rank):
        self.store, self.rank, self.messages = store, rank, Counter()

    def _message(self, source, to):
        self.messages[source, to] += 1
        return f"length of message {self.messages[source, to]} from {source} to {to}"

    def announce(self, tensor, to):
        self.store.set(self._message(self.rank, to), str(tensor.numel()))

    def compare(self, like, source):
        """Waits for the sender's word. Raises WrongLength."""
        numbers = int(self.store.get(self._message(source, self.rank)))
        if numbers != like.numel():
            cure = "all ranks need the same length, and both sides the same part"
            raise WrongLength(f"expects {like.numel()} numbers from rank {source}, which sends {numbers}: {cure}")


def send(tensor, to, tag=0):
    """Start to send a tensor to a rank. Call ``wait()`` on what is returned before you change the tensor. tag: a whole
    number; its receiver gives the same one, and may receive messages with different tags in any order."""
    sent.update(messages=1, bytes=tensor.numel() * tensor.element_size())
    if lengths:
        lengths.announce(tensor, to)
    return dist.isend(tensor.contiguous(), to, tag=tag)


def expect(like, source, tag=0):
    """Start to receive a tensor from rank `source`, with the shape and type of `like`; ``wait()`` on what is returned
    waits for it, and returns it.

    Two ranks that send to each other expect first: gloo sends both ways at once only to a rank that is already
    receiving. Within `lengths_compared` it starts only in ``wait()``, so wait for this before you wait for what you
    send.
    """
    return Expected(torch.empty_like(like, memory_format=torch.contiguous_format), source, tag)


class Expected:
    """A tensor that is on its way."""

    def __init__(self, tensor, source, tag):
        self.tensor, self.source, self.tag = tensor, source, tag
        self.work = None if lengths else dist.irecv(tensor, source, tag=tag)

    def wait(self):
        begin = time.perf_counter()
        if self.work is None:
            lengths.compare(self.tensor, self.source)
            self.work = dist.irecv(self.tensor, self.source, tag=self.tag)
        self.work.wait()
        waited["seconds"] += time.perf_counter() - begin
        return self.tensor


def receive(like, source, tag=0):
    """Wait for a tensor from rank `source`, with the shape and type of `like`, and return it."""
    return expect(like, source, tag).wait()


@contextmanager
def lengths_compared(store, rank):
    """Has every message's length compared meanwhile, through the ranks' store."""
    global lengths
    lengths = Lengths(store, rank)
    try:
        yield
    finally:
        lengths = None


def vector(tensors, *more):
    """A copy of some tensors, or of all parameters of a model, as one long tensor on the CPU or GPU where they are.
    more: numbers behind them."""
    tensors = [
        tensor.detach().flatten()
        for tensor in (tensors.parameters() if isinstance(tensors, torch.nn.Module) else tensors)
    ]
    return torch.cat([*tensors, tensors[0].new_tensor(more)])


@torch.no_grad()
def load(numbers, model):
    """Copy the numbers of a long tensor to the parameters of a model, in their order. It may have more numbers than
    they need."""
    for parameter in model.parameters():
        part, numbers = numbers[: parameter.numel()], numbers[parameter.numel() :]
        parameter.copy_(part.view_as(parameter))


def dismiss(parameters):
    """A parameter server's last word: answer one more gradient of each worker with parameters whose last number is
    0."""
    parameters[-1], gradient = 0, torch.empty_like(parameters)
    for _ in range(dist.get_world_size() - 1):
        dist.send(parameters, dist.recv(gradient))


def pack(flags):
    """Booleans (n) as bits: uint8 (n / 8, rounded up)."""
    return torch.from_numpy(numpy.packbits(flags.numpy()))


def unpack(bits, count):
    """The first `count` booleans of what `pack` gave."""
    return torch.from_numpy(numpy.unpackbits(bits.numpy(), count=count)).bool()


def gather(tensors):
    """Every rank's `tensors`, which have the same shapes and types on all ranks: a list with a list for each rank. One
    message each."""
    mine = torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors])
    everybodys = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, mine)
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    return [
        [part.clone().view(tensor.dtype).view_as(tensor) for part, tensor in zip(one.split(sizes), tensors)]
        for one in everybodys
    ]


def done(tensor):
    """A future that has `tensor` already, as a communication hook returns it."""
    future = torch.futures.Future()
    future.set_result(tensor)
    return future
