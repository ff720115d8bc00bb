"""The workers that mpiexec has started, and the device of this worker. A script first calls `meet`."""

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
    """The values that handson.training.banner.announce prints."""

    rank: int
    size: int
    intra_rank: int
    inter_size: int  # the number of nodes
    devices: str  # the devices of all workers, in words
    name: str = "MPI"


def world():
    """Return mpi4py's communicator of all workers, or of this process if mpiexec has not started it. From the first
    call on, all workers end together. Raises TrackError after `finalize`."""
    from mpi4py import MPI

    from handson.training import all_ranks

    if MPI.Is_finalized():
        raise TrackError(
            "the workers can't communicate after Communicator.finalize(): call it at the end of the script"
        )
    all_ranks.install()
    return MPI.COMM_WORLD


def device():
    """Return the device on which this worker computes."""
    return _device


def add_options(parser):
    """Add the options that only train_cntk.py has."""
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
    """Assign each worker of a node its own GPU: one of the ids args.gpu, or one of the first GPUs. Return the Workers.
    Raises TrackError."""
    global _device
    comm, node = world(), current_node()
    nodes = comm.allgather(node)
    intra_rank = nodes[: comm.rank].count(node)
    args.gpu = gpus = args.gpu or devices.first(nodes.count(node))
    devices.check(gpus)
    if len(gpus) < nodes.count(node):
        raise TrackError(
            f"-g names {counted(len(gpus), 'GPU')}, but {there(nodes.count(node), 'worker')} on {node}: name a GPU for"
            " each worker"
        )
    places = [tuple(place) for place in comm.allgather((virtual_gpus.machine(), devices.place(gpus[intra_rank])))]
    words = devices.describe(gpus, places)
    _device = devices.use(gpus[intra_rank])
    return Workers(comm.rank, comm.size, intra_rank, len(set(nodes)), words)


def finalize():
    """Wait for the other workers, which may take long, and finalize MPI. Messages cannot be sent after this call."""
    from mpi4py import MPI

    from handson.training import all_ranks

    if not MPI.Is_finalized():
        all_ranks.wait_for_the_others()
        MPI.Finalize()
