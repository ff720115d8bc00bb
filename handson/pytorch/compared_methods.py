"""Trains with several methods of communication, one after the other in the same processes: what train_hooks.py needs beside its lesson."""

import copy
import itertools
import time

import torch
import torch.nn.functional as F
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader, DistributedSampler

from handson.errors import TrackError
from handson.pytorch import devices, extensions, wire
from handson.pytorch.workers import stop_together
from handson.training import data, options, results, watchdog


class Forgetful(dict):
    """A state that keeps nothing: error feedback without memory."""

    def __setitem__(self, key, value):
        pass


def add_options(methods):
    """Options beside those of all training scripts, for options.parse."""

    def add(parser):
        names = [*methods, "all"]
        add = parser.add_argument
        add("--method", choices=names, nargs="+", default=["plain"], metavar="NAME", help=f"one or more of: {', '.join(names)} (plain)")
        add("--seeds", type=options.positive(int, 100), default=1, metavar="N", help="train each method with N seeds, from --seed on (1)")
        add("--warm-up", type=options.natural, default=12, metavar="STEPS", help="steps with all bits before a method begins (12)")
        parser.set_defaults(size=32, batchsize=64, lr=0.1, epoch=6, methods=list(methods))

    return add


def device(comm, args):
    """The device of this rank, among those of its node. (In other words than task 3, whose students find the line themselves.)"""
    of_node = dict(enumerate(args.gpu))
    return devices.use(of_node[comm.intra_rank])


def runs(args):
    """(method, seed) of each training."""
    methods = args.methods if "all" in args.method else args.method
    return [(method, args.seed + number) for number in range(args.seeds) for method in methods]


def one_run(args, method, seed):
    """The options of one of several trainings: its seed, and a folder of its own."""
    args = copy.copy(args)
    args.seed, args.communicator = seed, method
    args.out = args.out / f"{method}_{seed}"
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def after_warm_up(hook, steps, plain):
    """A communication hook that is `plain` during the first steps, then `hook`.

    DistributedDataParallel fills its buckets anew after the first step: a residual of that step would not fit.
    """
    done = {}

    def warm(state, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        done[bucket.index()] = done.get(bucket.index(), 0) + 1
        return plain(None, bucket) if done[bucket.index()] <= max(1, steps) else hook(state, bucket)

    return warm


def guard(comm, model, steps):
    """End all ranks with a sentence where their models or their numbers of steps differ: they would wait for each other for ever. From now on,
    a gradient that is infinite or NaN ends them, too, with the rank that has computed it; after an all-reduce all ranks would have it."""
    sizes = sum(parameter.numel() for parameter in model.parameters())
    everybodys = comm.allgather((sizes, steps))
    other = next((rank for rank in range(comm.size) if everybodys[rank] != everybodys[0]), None)
    problem = None
    if other is not None:
        (mine, own_steps), (theirs, their_steps) = everybodys[0], everybodys[other]
        what = "parameters in its model" if mine != theirs else "steps in an epoch"
        first, second = (mine, theirs) if mine != theirs else (own_steps, their_steps)
        problem = f"rank 0 has {first:,} {what}, and rank {other} has {second:,}: all ranks need the same number, or they would wait for each other for ever"
    stop_together(problem)

    def check(name, gradient):
        if not gradient.sum().isfinite():  # the sum is neither, if any of them is
            raise TrackError(f"rank {comm.rank}: the gradient of {name} is infinite or NaN, so the run ends: try a lower --lr")

    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda gradient, name=name: check(name, gradient))


def endless(train_set, args, part, parts, device, pause=0.0):
    """Batches of one of `parts` parts of the images, epoch after epoch, on a device. pause: seconds of sleep before each, for a slow worker."""
    sampler = DistributedSampler(train_set, parts, part, seed=args.seed)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(train_set, args.batchsize, sampler=sampler):
            time.sleep(pause)
            watchdog.progress()
            yield data.enlarge(images.to(device), args.size), labels.to(device)


@torch.no_grad()
def settle(model, train_set, args, device, batches=4):
    """Take the statistics of batch normalisation from some training images, for parameters that other ranks have trained; returns the loss there."""
    some = list(itertools.islice(endless(train_set, args, 0, 1, device), batches))
    update_bn(some, model)
    images, labels = some[-1]
    return F.cross_entropy(model(images), labels)


class Progress:
    """Rank 0's table of a training, with the seconds of training alone and the bytes that its node has sent.

    together: all ranks make one, and `add` together.
    """

    def __init__(self, comm, method, together=True):
        self.comm, self.log, self.seconds, self.bytes, self.together = comm, [], 0.0, 0, together
        if comm.rank == 0:
            print(f"\nMethod: {method}\nepoch  main/loss  validation/main/accuracy  elapsed_time  MB sent", flush=True)
        self._go_on()

    def _go_on(self):
        if self.together:
            torch.distributed.barrier()
        self.begin, self.sent = time.perf_counter(), wire.interface_bytes()

    def add(self, loss, model, test_set, size):
        """One more epoch is over. Rank 0 evaluates, while the clock stands still. loss: a number, or a function that computes it meanwhile."""
        self.seconds += time.perf_counter() - self.begin
        self.bytes += wire.interface_bytes() - self.sent
        if self.comm.rank == 0:
            row = {
                "epoch": len(self.log) + 1,
                "main/loss": float(loss() if callable(loss) else loss),
                "validation/main/accuracy": accuracy(model, test_set, size),
                "elapsed_time": self.seconds,
                "bytes": self.bytes,
            }
            self.log.append(row)
            print("{:<6} {:<9.4f}  {:<24.4f}  {:<12.2f}  {:.2f}".format(*list(row.values())[:4], self.bytes / 1e6), flush=True)
        self._go_on()

    def report(self, args, images):
        """Print the throughput and write the result, on rank 0."""
        if self.comm.rank == 0:
            results.report(args, images / self.seconds, images, self.seconds, self.log)


@torch.no_grad()
def accuracy(model, test_set, size):
    """The fraction of the images of `test_set` that the model gets right, on the device of its parameters."""
    device = next(model.parameters()).device

    def prepare(images, labels):
        return data.enlarge(images.to(device), size), labels.to(device)

    return extensions.Evaluator(DataLoader(test_set, 256), model, prepare).evaluate()["validation/main/accuracy"]
