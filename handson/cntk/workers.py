"""The workers that mpiexec has started, the device of this one, and their common end. A script begins with `meet`."""

from dataclasses import dataclass

import torch

from handson.cluster.nodes import current_node
from handson.errors import TrackError
from handson.pytorch import devices
from handson.training import options, virtual_gpus
from handson.words import counted, there

_device = torch.device("cpu")


@dataclass
class Workers:
    """The properties that handson.training.banner.announce prints."""

    rank: int
    size: int
    intra_rank: int
    inter_size: int  # the number of nodes
    devices: str  # of all workers, in words
    name: str = "MPI"


def world():
    """Return all workers, as mpi4py's communicator; only this process if no mpiexec has started it. From now on they
    end together. Raises TrackError after `finalize`."""
    from mpi4py import MPI

    from handson.training import all_ranks

    if MPI.Is_finalized():
        raise TrackError("Communicator.finalize() has been called: the workers cannot communicate any more")
    all_ranks.install()
    return MPI.COMM_WORLD


def device():
    """Return the device of this worker."""
    return _device


def add_options(parser):
    """Add the options of train_cntk.py that other training scripts do not have."""
    add = parser.add_argument
    add(
        "--bits",
        type=options.natural,
        default=32,
        metavar="N",
        help="bits per gradient (num_quantization_bits), 32 or 1. Default: 32",
    )
    add(
        "--warm-up",
        type=options.natural,
        default=0,
        metavar="SAMPLES",
        help="number of samples before the workers communicate (distributed_after). Default: 0",
    )
    add(
        "--block-size",
        type=options.natural,
        default=0,
        metavar="SAMPLES",
        help="block size of block momentum in samples; 0: data parallel. Default: 0",
    )
    add("--by-hand", action="store_true", help="use your own loop instead of the training session")
    add("--restore", action="store_true", help="resume from the checkpoint in the folder for results")
    parser.set_defaults(size=8, lr=0.05)


def meet(args):
    """Assign a GPU to each worker of a node, from the ids args.gpu or from the first ones, and return the Workers.
    Raises TrackError."""
    global _device
    comm, node = world(), current_node()
    nodes = comm.allgather(node)
    intra_rank = nodes[: comm.rank].count(node)
    args.gpu = gpus = args.gpu or devices.first(nodes.count(node))
    devices.check(gpus)
    if len(gpus) < nodes.count(node):
        raise TrackError(
            f"-g names {counted(len(gpus), 'GPU')}, but {there(nodes.count(node), 'worker')} on {node}: name one for"
            " each"
        )
    places = [tuple(place) for place in comm.allgather((virtual_gpus.machine(), devices.place(gpus[intra_rank])))]
    words = devices.describe(gpus, places)
    _device = devices.use(gpus[intra_rank])
    return Workers(comm.rank, comm.size, intra_rank, len(set(nodes)), words)


def finalize():
    """Wait for the other workers, which may take long, and leave MPI. No worker can send anything afterwards."""
    from mpi4py import MPI

    from handson.training import all_ranks

    if not MPI.Is_finalized():
        all_ranks.wait_for_the_others()
        MPI.Finalize()
