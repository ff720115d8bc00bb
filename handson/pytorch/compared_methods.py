"""Trains with several methods of communication, one after the other in the same processes: what train_hooks.py needs beside its lesson."""

import copy
import time

import torch
from torch.utils.data import DataLoader

from handson.pytorch import devices, extensions, wire
from handson.training import data, options, results


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


class Progress:
    """Rank 0's table of a training, with the seconds of training alone and the bytes that its node has sent."""

    def __init__(self, comm, method):
        self.comm, self.log, self.seconds, self.bytes = comm, [], 0.0, 0
        if comm.rank == 0:
            print(f"\nMethod: {method}\nepoch  main/loss  validation/main/accuracy  elapsed_time  MB sent", flush=True)
        self._go_on()

    def _go_on(self):
        torch.distributed.barrier()
        self.begin, self.sent = time.perf_counter(), wire.interface_bytes()

    def add(self, loss, model, test_set, size):
        """One more epoch is over. Rank 0 evaluates, while the clock stands still."""
        self.seconds += time.perf_counter() - self.begin
        self.bytes += wire.interface_bytes() - self.sent
        if self.comm.rank == 0:
            row = {
                "epoch": len(self.log) + 1,
                "main/loss": float(loss),
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
