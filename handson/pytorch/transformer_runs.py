"""What the training scripts of notebook 06_model_parallel need beside their lessons: options, the network, and the
table of a training."""

import torch
import torch.distributed as dist

from handson.errors import TrackError
from handson.pytorch import devices, transformer
from handson.training import data, method_runs, transformer_options
from handson.training.method_runs import one_run, runs  # noqa: F401 - for scripts
from handson.training.transformer_options import add as add_options  # noqa: F401 - for scripts
from handson.training.transformer_options import add_mesh as add_mesh_options  # noqa: F401 - for scripts


def network(args, classes):
    """The transformer that the options `args` describe, on the CPU; it begins alike on all ranks. Raises TrackError."""
    return torch.nn.Sequential(*layers(args, classes, range(args.blocks + 2)))


def layers(args, classes, numbers):
    """Those layers of the network whose numbers, from 0 on, are in `numbers`, with the parameters that they have in the
    whole network.

    Raises TrackError.
    """
    if problem := transformer_options.problem(args):
        raise TrackError(problem, on_all_ranks=True)
    torch.manual_seed(args.seed)
    dropout = getattr(args, "dropout", 0.0)  # only scripts that seed it have the option
    everything = transformer.layers(classes, args.size, args.patch, args.width, args.heads, args.blocks, dropout)
    return [layer for number, layer in enumerate(everything) if number in numbers]


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


class Progress(method_runs.Progress):
    """The table of a training. All ranks make one, and `add` together."""

    def __init__(self, comm, method):
        super().__init__(comm.rank, method, devices.wait_for_all, accuracy=False)
