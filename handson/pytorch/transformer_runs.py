"""What the training scripts of notebook 06_model_parallel need beside their lessons: their main program, the network,
and the table of a training."""

import torch
import torch.distributed as dist

from handson.errors import TrackError
from handson.pytorch import transformer
from handson.pytorch.communicator import meet
from handson.pytorch.workers import TIMEOUT, stop_together
from handson.training import data, method_runs, options, transformer_options
from handson.training.banner import announce


def train_each(train, methods, add_options=transformer_options.add, ranks=None):
    """The main program of a script: form the process group, and call train(comm, args, method, train_set) on all ranks
    for each of `methods` that --method names, and each seed.

    add_options: of transformer_options; ranks: how many this training is for, None if any number will do.
    """
    args = options.parse(gpus=None, add_options=add_options(methods))
    with meet(args) as comm:  # MPI or torchrun says which rank this is, and where the others are
        dist.init_process_group(comm.backend, store=comm.store, rank=comm.rank, world_size=comm.size, timeout=TIMEOUT)
        if ranks not in (None, comm.size):
            stop_together(f"this training is for {ranks} rank{'s' * (ranks > 1)}: start it with mpiexec -n {ranks}")
        train_set, _ = data.load(args.dataset)
        announce("one GPU" if ranks == 1 else "multiple nodes", args, train_set, comm.devices, comm)
        for method, seed in method_runs.runs(args):
            train(comm, method_runs.one_run(args, method, seed), method, train_set)


def network(args, classes):
    """The transformer that the options `args` describe, on the CPU; it begins alike on all ranks. Raises TrackError."""
    return transformer.Transformer(*_sizes(args, classes))


def layers(args, classes, numbers):
    """Those layers of the network whose numbers, from 0 on, are in `numbers`, with the parameters that they have in the
    whole network.

    Raises TrackError.
    """
    return [layer for number, layer in enumerate(transformer.layers(*_sizes(args, classes))) if number in numbers]


def _sizes(args, classes):
    """The arguments of a Transformer, which begins with the numbers that follow from --seed. Raises TrackError."""
    if problem := transformer_options.problem(args):
        raise TrackError(problem, on_all_ranks=True)
    torch.manual_seed(args.seed)
    dropout = getattr(args, "dropout", 0.0)  # only scripts that seed it have the option
    return classes, args.size, args.patch, args.width, args.heads, args.blocks, dropout


def tokens(args, images):
    """A tensor with the shape and type of what one layer gives to the next for so many images: (images, tokens,
    width)."""
    return torch.empty(images, (args.size // args.patch) ** 2, args.width)


def batches(loader, args, device):
    """The batches of a DataLoader on a device: images (N, 3, size, size) and labels (N,). Raises TrackError where there
    is none."""
    if not len(loader):
        sentence = (
            f"--batchsize {args.batchsize} is more than the images of a rank, so there is no step: take a smaller one"
        )
        raise TrackError(sentence, on_all_ranks=True)
    for images, labels in loader:
        yield data.enlarge(images.to(device), args.size), labels.to(device)


class Progress(method_runs.Losses):
    """The table of a training. All ranks make one, and `add` together."""

    def __init__(self, comm, method):
        super().__init__(comm, method, dist.barrier if dist.is_initialized() else lambda: None)
