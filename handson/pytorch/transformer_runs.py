"""What the training scripts of notebook 06_model_parallel need beside their lessons: options, the network, and the table of a training."""

import time

import torch
import torch.distributed as dist

from handson.errors import TrackError
from handson.pytorch import transformer
from handson.training import compared_methods, data, options, results
from handson.training.compared_methods import interface_bytes, one_run, runs  # noqa: F401 - for scripts


def add_options(methods):
    """Options beside those of all training scripts, for options.parse. methods: the names that --method takes."""

    def add(parser):
        compared_methods.add_options(methods)(parser)
        whole = options.positive(int, 65536)
        parser.add_argument("--width", type=whole, default=128, metavar="N", help="numbers that the network keeps of each patch (%(default)s)")
        parser.add_argument("--heads", type=whole, default=4, metavar="N", help="heads of each attention (%(default)s)")
        parser.add_argument("--blocks", type=whole, default=4, metavar="N", help="blocks of attention and MLP (%(default)s)")
        parser.add_argument("--patch", type=whole, default=2, metavar="PIXELS", help="side length of a patch (%(default)s)")
        parser.set_defaults(size=8, epoch=2, lr=0.001)

    return add


def network(args, classes):
    """The transformer that the options `args` describe, on the CPU; it begins alike on all ranks. Raises TrackError."""
    return torch.nn.Sequential(*layers(args, classes, range(args.blocks + 2)))


def layers(args, classes, numbers):
    """Those layers of the network whose numbers, from 0 on, are in `numbers`, with the parameters that they have in the whole network."""
    if args.width % args.heads:
        raise TrackError(f"--width {args.width} cannot be divided among {args.heads} heads: take a multiple of --heads")
    if args.size % args.patch:
        raise TrackError(f"--size {args.size} cannot be cut into patches of {args.patch} pixels: take a multiple of --patch")
    torch.manual_seed(args.seed)
    everything = transformer.layers(classes, args.size, args.patch, args.width, args.heads, args.blocks)
    return [layer for number, layer in enumerate(everything) if number in numbers]


def tokens(args, images):
    """A tensor with the shape and type of what one layer gives to the next for so many images: (images, tokens, width)."""
    return torch.empty(images, (args.size // args.patch) ** 2, args.width)


def batches(loader, args, device):
    """The batches of a DataLoader on a device: images (N, 3, size, size) and labels (N,)."""
    for images, labels in loader:
        yield data.enlarge(images.to(device), args.size), labels.to(device)


class Progress:
    """Rank 0's table of a training, with the seconds of training alone and the bytes that its node has sent. All ranks make one, and `add`
    together. There is no accuracy: the rank that would compute it may have a part of the network only."""

    def __init__(self, comm, method):
        self.comm, self.log, self.seconds, self.bytes = comm, [], 0.0, 0
        if comm.rank == 0:
            print(f"\nMethod: {method}\nepoch  main/loss  elapsed_time  MB sent", flush=True)
        self._go_on()

    def _go_on(self):
        if dist.is_initialized():
            dist.barrier()
        self.begin, self.sent = time.perf_counter(), interface_bytes()

    def add(self, loss):
        """One more epoch is over. loss: of its last batch, a number or a tensor; only that of rank 0 counts."""
        if dist.is_initialized():
            dist.barrier()
        self.seconds += time.perf_counter() - self.begin
        self.bytes += interface_bytes() - self.sent
        if self.comm.rank == 0:
            row = {"epoch": len(self.log) + 1, "main/loss": float(loss), "elapsed_time": self.seconds, "bytes": self.bytes}
            self.log.append(row)
            print("{:<6} {:<9.4f}  {:<12.2f}  {:.2f}".format(*list(row.values())[:3], self.bytes / 1e6), flush=True)
        self._go_on()

    def report(self, args, images):
        """Print the throughput and write the result, on rank 0. images: trained on by all ranks in all epochs."""
        if self.comm.rank == 0:
            results.report(args, images / self.seconds, images, self.seconds, self.log)
