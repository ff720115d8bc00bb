"""Helpers of the training scripts of notebook 06_model_parallel: their main program, the network, and the progress
table."""

import torch
import torch.distributed as dist

from handson.errors import TrackError
from handson.pytorch import devices, transformer
from handson.pytorch.communicator import communicator
from handson.training import banner, data, method_runs, options, transformer_options


def train_each(train, methods, add_options=transformer_options.add, ranks=None):
    """Run a script: form the process group, and call train(comm, args, method, train_set) on all ranks for each of
    `methods` that --method names, and each seed.

    add_options: a function like transformer_options.add. ranks: the number of ranks that the script requires, None for
    any.
    """
    args = options.parse(gpus=devices.first, add_options=add_options(methods))
    dist.init_process_group(devices.backend(args.gpu))  # reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    comm = communicator(args)
    if ranks not in (None, comm.size):
        sentence = f"this training is for {ranks} rank{'s' * (ranks > 1)}: start it with mpiexec -n {ranks}"
        raise TrackError(sentence, on_all_ranks=True)
    train_set, _ = data.load(args.dataset)
    banner.announce("one GPU" if ranks == 1 else "multiple nodes", args, train_set, comm.devices, comm)
    for method, seed in method_runs.runs(args):
        train(comm, method_runs.one_run(args, method, seed), method, train_set)
    dist.destroy_process_group()


def network(args, classes):
    """Return the transformer that the options `args` describe, on the CPU, with equal initial parameters on all ranks.
    Raises TrackError."""
    return transformer.Transformer(*_sizes(args, classes))


def layers(args, classes, numbers):
    """Return the layers of the network whose numbers (from 0) are in `numbers`, with the same parameters as in the
    whole network. Raises TrackError."""
    return [layer for number, layer in enumerate(transformer.layers(*_sizes(args, classes))) if number in numbers]


def _sizes(args, classes):
    """Return the arguments of a Transformer, and seed its initial parameters with --seed. Raises TrackError."""
    if problem := transformer_options.problem(args):
        raise TrackError(problem, on_all_ranks=True)
    torch.manual_seed(args.seed)
    dropout = getattr(args, "dropout", 0.0)  # only scripts that seed it have the option
    return classes, args.size, args.patch, args.width, args.heads, args.blocks, dropout


def tokens(args, images):
    """Return a tensor with the shape (images, tokens, width) and the type of a layer's output for this many images."""
    return torch.empty(images, (args.size // args.patch) ** 2, args.width)


def batches(loader, args, device):
    """Yield the batches of a DataLoader on a device: images (N, 3, size, size) and labels (N,). Raises TrackError if
    there are none."""
    if not len(loader):
        sentence = (
            f"--batchsize {args.batchsize} is larger than a rank's number of images, so there is no step: choose"
            " a smaller batch size"
        )
        raise TrackError(sentence, on_all_ranks=True)
    for images, labels in loader:
        yield data.enlarge(images.to(device), args.size), labels.to(device)


class Progress(method_runs.Progress):
    """The progress table of a training run. All ranks create one, and call `add` together."""

    def __init__(self, comm, method):
        super().__init__(comm.rank, method, devices.wait_for_all, accuracy=False)
