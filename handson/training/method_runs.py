"""Runs with several methods of communication, one after the other in the same processes: the shared code of both
tracks."""

import copy
import time

from handson import linux
from handson.profiling import recording, usage
from handson.training import gpu_memory, options, results, step_times


def add_options(parser, methods):
    """Add the options that only these scripts have. methods: the names that --method takes."""
    names = [*methods, "all"]
    parser.add_argument(
        "--method",
        choices=names,
        nargs="+",
        default=names[:1],
        metavar="NAME",
        help=f"one or more of: {', '.join(names)}. Default: {names[0]}",
    )
    parser.add_argument(
        "--seeds",
        type=options.positive(int, 100),
        default=1,
        metavar="N",
        help="number of seeds per method, starting at --seed. Default: %(default)s",
    )
    parser.set_defaults(size=32, batchsize=64, lr=0.1, epoch=6, methods=list(methods))


def runs(args):
    """Return (method, seed) of each run."""
    methods = args.methods if "all" in args.method else args.method
    return [(method, args.seed + number) for number in range(args.seeds) for method in methods]


def one_run(args, method, seed):
    """Return the options of one of several runs, with its seed and its own folder."""
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
    """The progress table that rank 0 prints: training time without evaluation, and bytes sent by its node.

    barrier: a function that returns when all ranks have called it and their devices have finished. accuracy: whether
    rank 0 computes an accuracy; it can't if it has only a part of the network.
    """

    def __init__(self, rank, method, barrier, accuracy=True):
        self.rank, self.barrier, self.log, self.seconds, self.bytes = rank, barrier, [], 0.0, 0
        columns = "epoch  main/loss  validation/main/accuracy  elapsed_time  MB sent"
        if rank == 0:
            print(f"\nMethod: {method}\n{columns if accuracy else columns.replace('validation/main/accuracy  ', '')}")
        self._go_on()

    def _go_on(self):
        self.barrier()
        self.begin, self.sent = time.perf_counter(), linux.bytes_sent()

    def add(self, loss, evaluate=None):
        """Add an epoch. All ranks must call this method. Rank 0 calls `evaluate`, which returns the accuracy, while the
        clock is stopped.

        loss: a number, or a function that returns it; only rank 0's loss is used.
        """
        self.barrier()
        self.seconds += time.perf_counter() - self.begin
        self.bytes += linux.bytes_sent() - self.sent
        if self.rank == 0:
            row = {"epoch": len(self.log) + 1, "main/loss": float(loss() if callable(loss) else loss)}
            row |= {"validation/main/accuracy": evaluate()} if evaluate else {}
            self.log.append(row | {"elapsed_time": self.seconds, "bytes": self.bytes})
            epoch, loss, *accuracy = row.values()
            line = [f"{epoch:<5}", f"{loss:<9.4f}", *(f"{one:<24.4f}" for one in accuracy), f"{self.seconds:<12.2f}"]
            print("  ".join(line), f" {self.bytes / 1e6:.2f}", flush=True)
        self._go_on()

    def report(self, args, images):
        """Print the throughput and write the result, on rank 0."""
        if self.rank == 0:
            results.report(args, images / self.seconds, images, self.seconds, self.log)
