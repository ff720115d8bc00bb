"""Trains with several methods of communication, one after the other in the same processes: what the scripts of both
tracks share."""

import copy
import time

from handson import linux
from handson.profiling import recording, usage
from handson.training import gpu_memory, options, results, step_times


def add_options(methods):
    """Options beside those of all training scripts, for options.parse."""

    def add(parser):
        names = [*methods, "all"]
        add = parser.add_argument
        add(
            "--method",
            choices=names,
            nargs="+",
            default=names[:1],
            metavar="NAME",
            help=f"one or more of: {', '.join(names)} ({names[0]})",
        )
        add(
            "--seeds",
            type=options.positive(int, 100),
            default=1,
            metavar="N",
            help="train each method with N seeds, from --seed on (1)",
        )
        parser.set_defaults(size=32, batchsize=64, lr=0.1, epoch=6, methods=list(methods))

    return add


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
    gpu_memory.begin(args)
    step_times.forget()
    recording.forget_writing()
    usage.go_on_in(args.out)
    return args


class Progress:
    """Rank 0's table of a training, with the seconds of training alone and the bytes that its node has sent.

    barrier: a function that returns when all ranks have called it.
    """

    def __init__(self, comm, method, barrier):
        self.comm, self.barrier, self.log, self.seconds, self.bytes = comm, barrier, [], 0.0, 0
        if comm.rank == 0:
            print(f"\nMethod: {method}\nepoch  main/loss  validation/main/accuracy  elapsed_time  MB sent", flush=True)
        self._go_on()

    def _go_on(self):
        self.barrier()
        self.begin, self.sent = time.perf_counter(), linux.bytes_sent()

    def add(self, loss, evaluate):
        """One more epoch is over. Rank 0 calls `evaluate`, which returns the accuracy, while the clock stands still.
        loss: a number, or a function."""
        self.seconds += time.perf_counter() - self.begin
        self.bytes += linux.bytes_sent() - self.sent
        if self.comm.rank == 0:
            row = {
                "epoch": len(self.log) + 1,
                "main/loss": float(loss() if callable(loss) else loss),
                "validation/main/accuracy": evaluate(),
                "elapsed_time": self.seconds,
                "bytes": self.bytes,
            }
            self.log.append(row)
            print(
                "{:<6} {:<9.4f}  {:<24.4f}  {:<12.2f}  {:.2f}".format(*list(row.values())[:4], self.bytes / 1e6),
                flush=True,
            )
        self._go_on()

    def report(self, args, images):
        """Print the throughput and write the result, on rank 0."""
        if self.comm.rank == 0:
            results.report(args, images / self.seconds, images, self.seconds, self.log)


class Losses(Progress):
    """As Progress, without an accuracy: the rank that would compute it may have a part of the network only."""

    def __init__(self, comm, method, barrier):
        self.comm, self.barrier, self.log, self.seconds, self.bytes = comm, barrier, [], 0.0, 0
        if comm.rank == 0:
            print(f"\nMethod: {method}\nepoch  main/loss  elapsed_time  MB sent", flush=True)
        self._go_on()

    def add(self, loss):
        """One more epoch is over. All ranks call it. loss: of its last batch, a number or a tensor; only that of rank 0
        counts."""
        self.barrier()
        self.seconds += time.perf_counter() - self.begin
        self.bytes += linux.bytes_sent() - self.sent
        if self.comm.rank == 0:
            self.log.append(
                {
                    "epoch": len(self.log) + 1,
                    "main/loss": float(loss),
                    "elapsed_time": self.seconds,
                    "bytes": self.bytes,
                }
            )
            print(f"{len(self.log):<6} {float(loss):<9.4f}  {self.seconds:<12.2f}  {self.bytes / 1e6:.2f}", flush=True)
        self._go_on()
