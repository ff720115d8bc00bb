"""Point-to-point messages that are counted, for collectives written from scratch (unit communication), and what times these collectives."""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from contextlib import contextmanager

import numpy
import torch
import torch.distributed as dist

from handson.errors import OneSentence
from handson.files import written_aside
from handson.pytorch.communicator import meet
from handson.pytorch.workers import TIMEOUT
from handson.training import identity, options, watchdog

sent = Counter()  # "messages" and "bytes" that this rank has sent
lengths = None  # a Lengths, while an all-reduce is checked
SIZES = [4**power for power in range(2, 12)]  # numbers of 4 bytes: 64 B to 16 MB
SHARE = 0.2  # seconds for the repetitions of one size
WRONG = 1e-4  # relative: float32 is added up in another order


class WrongSum(OneSentence):
    """An all-reduce that does not give the sum."""


class WrongLength(OneSentence):
    """A message that is longer or shorter than its receiver expects."""


class Lengths:
    """Lets the receiver of each message compare its length, through the ranks' store: gloo would abort a process that receives too much."""

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
            raise WrongLength(f"expects {like.numel()} numbers from rank {source}, which sends {numbers}: all ranks need the same length, and both sides the same part")


def send(tensor, to):
    """Start to send a tensor to a rank. Call ``wait()`` on what is returned before you change the tensor."""
    sent.update(messages=1, bytes=tensor.numel() * tensor.element_size())
    if lengths:
        lengths.announce(tensor, to)
    return dist.isend(tensor.contiguous(), to)


def expect(like, source):
    """Start to receive a tensor from rank `source`, with the shape and type of `like`; ``wait()`` on what is returned waits for it, and returns it.

    Two ranks that send to each other expect first: gloo sends both ways at once only to a rank that is already receiving.
    """
    return Expected(torch.empty_like(like), source)


class Expected:
    """A tensor that is on its way."""

    def __init__(self, tensor, source):
        self.tensor, self.source = tensor, source
        self.work = None if lengths else dist.irecv(tensor, source)

    def wait(self):
        if self.work is None:
            lengths.compare(self.tensor, self.source)
            self.work = dist.irecv(self.tensor, self.source)
        self.work.wait()
        return self.tensor


def receive(like, source):
    """Wait for a tensor from rank `source`, with the shape and type of `like`, and return it."""
    return expect(like, source).wait()


def measure(algorithms):
    """The main program of a script of all-reduces: time each of `algorithms` (name -> function of a tensor), and write all_reduce.json.

    The file holds {"ranks": N, "rows": [{"algorithm", "bytes", "seconds" (median; of the slowest rank), "messages", "sent" (bytes; both for
    each rank)}]}. A sum that is wrong ends all ranks with a sentence.
    """
    parser = options.OneSentenceParser(description="Time all-reduces of growing size.", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("-g", "--gpu", type=options.gpu_ids, metavar="IDS", help="accepted as by the training scripts; not used")
    add("--largest", type=options.positive(int, 1 << 30), default=4 * SIZES[-1], metavar="BYTES", help="size of the largest message")
    add("--patience", type=options.natural, default=30, metavar="SECONDS", help="end ranks that finish no all-reduce for so long; 0: never")
    _, script, track = identity.of(sys.argv[0])
    options.add_out(parser, script, track)
    args = parser.parse_args()
    if args.gpu and options.launcher_rank() == 0:
        print("Warning: -g has no effect, as no GPU takes part here.")
    options.make_out(parser, args.out)
    torch.set_num_threads(1)
    with meet(args) as comm:
        dist.init_process_group("gloo", store=comm.store, rank=comm.rank, world_size=comm.size, timeout=TIMEOUT)
        rows = []
        for numbers in (numbers for numbers in SIZES if 4 * numbers <= args.largest):
            for name, all_reduce in algorithms.items():
                rows.append({"algorithm": name, "bytes": 4 * numbers} | timed(name, all_reduce, numbers, comm))
        if comm.rank == 0:
            with written_aside(args.out / "all_reduce.json") as file:
                file.write(json.dumps({"ranks": comm.size, "nodes": comm.inter_size, "rows": rows}).encode())
            print(f"{len(rows)} measurements: {args.out}/all_reduce.json")


@contextmanager
def _lengths_compared(store, rank):
    global lengths
    lengths = Lengths(store, rank)
    try:
        yield
    finally:
        lengths = None


def timed(name, all_reduce, numbers, comm):
    """The median time of an all-reduce, after one that is checked and counted."""
    mine = torch.randn(numbers, generator=torch.Generator().manual_seed(comm.rank))
    right = mine.clone()
    dist.all_reduce(right)
    sent.clear()
    found = mine.clone()
    with _lengths_compared(dist.PrefixStore(f"{name} {numbers}", comm.store), comm.rank):
        all_reduce(found)
    counted = comm.allgather([sent["messages"], sent["bytes"]])
    off = (found - right).abs().max().item()
    worst = max(comm.allgather(off))
    if not worst <= WRONG * comm.size:
        where = f"{name}: the result for {numbers} numbers on {comm.size} ranks"
        raise WrongSum(f"{where} is no sum (off by {worst:.3g}): correct it before it is measured")
    times, begin, go_on = [], time.perf_counter(), torch.ones(1)
    while go_on.item() and len(times) < 30:
        again = mine.clone()
        dist.barrier()
        start = time.perf_counter()
        all_reduce(again)
        times.append(time.perf_counter() - start)
        watchdog.progress()
        go_on.fill_(float(time.perf_counter() - begin < SHARE or len(times) < 3))
        dist.broadcast(go_on, 0)
    return {"seconds": max(comm.allgather(statistics.median(times))), "messages": [one for one, _ in counted], "sent": [one for _, one in counted]}


def vector(tensors, *more):
    """A copy of some tensors, or of all parameters of a model, as one long tensor on the CPU or GPU where they are. more: numbers behind them."""
    tensors = [tensor.detach().flatten() for tensor in (tensors.parameters() if isinstance(tensors, torch.nn.Module) else tensors)]
    return torch.cat([*tensors, tensors[0].new_tensor(more)])


@torch.no_grad()
def load(numbers, model):
    """Copy the numbers of a long tensor to the parameters of a model, in their order. It may have more numbers than they need."""
    for parameter in model.parameters():
        part, numbers = numbers[: parameter.numel()], numbers[parameter.numel() :]
        parameter.copy_(part.view_as(parameter))


def dismiss(parameters):
    """A parameter server's last word: answer one more gradient of each worker with parameters whose last number is 0."""
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
    """Every rank's `tensors`, which have the same shapes and types on all ranks: a list with a list for each rank. One message each."""
    mine = torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors])
    everybodys = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, mine)
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    return [[part.clone().view(tensor.dtype).view_as(tensor) for part, tensor in zip(one.split(sizes), tensors)] for one in everybodys]


def done(tensor):
    """A future that has `tensor` already, as a communication hook returns it."""
    future = torch.futures.Future()
    future.set_result(tensor)
    return future
