"""What the training scripts of notebook 06_model_parallel need beside their lessons: their main program, the network,
and the table of a training."""

import torch
import torch.distributed as dist

from handson.errors import TrackError
from handson.pytorch import devices, transformer
from handson.pytorch.communicator import communicator
from handson.training import banner, data, method_runs, options, transformer_options


def train_each(train, methods, add_options=transformer_options.add, ranks=None):
    """The main program of a script: form the process group, and call train(comm, args, method, train_set) on all ranks
    for each of `methods` that --method names, and each seed.

    add_options: of transformer_options; ranks: how many this training is for, None if any number will do.
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
            f"--batchsize {args.batchsize} is larger than a rank's number of images, so there is no step: choose"
            " a smaller batch size"
        )
        raise TrackError(sentence, on_all_ranks=True)
    for images, labels in loader:
        yield data.enlarge(images.to(device), args.size), labels.to(device)


class Progress(method_runs.Progress):
    """The table of a training. All ranks make one, and `add` together."""

    def __init__(self, comm, method):
        super().__init__(comm.rank, method, devices.wait_for_all, accuracy=False)
