"""A rank's information on all ranks of its process group, and the first lines of a training run. The script has created
the group with ``dist.init_process_group``; the fields have ChainerMN's names."""

import contextlib
import os
from dataclasses import dataclass

import torch.distributed as dist

from handson.cluster.nodes import current_node
from handson.errors import TrackError
from handson.pytorch import devices
from handson.training import banner, options, virtual_gpus

NOT_COMPARED = {"out"}  # only rank 0 writes, and nodes may have their files in different places


@dataclass
class Communicator:
    """One rank's view: its number among all ranks (rank) and on its node (intra_rank), and the number of ranks
    (size)."""

    rank: int
    size: int
    intra_rank: int
    inter_size: int  # the number of nodes
    name: str  # the backend, which sends the gradients
    devices: str = ""  # the devices of all ranks, in words

    def allgather(self, thing):
        """Return a list with every rank's `thing`, equal on all ranks."""
        return of_all_ranks(thing)

    def gather(self, thing):
        """Return a list with every rank's `thing` on rank 0, None on the others."""
        things = [None] * self.size if self.rank == 0 else None
        dist.gather_object(thing, things)
        return things

    def barrier(self):
        """Wait until all ranks have called it."""
        dist.barrier()

    def scatter(self, parts):
        """Return this rank's element of rank 0's `parts`, which has one for each rank. The values of other ranks are
        ignored."""
        mine = [None]
        dist.scatter_object_list(mine, parts if self.rank == 0 else None, src=0)
        return mine[0]


def of_all_ranks(thing):
    """Return a list with every rank's `thing`, equal on all ranks. All ranks must call it."""
    things = [None] * dist.get_world_size()
    dist.all_gather_object(things, thing)
    return things


def communicator(args):
    """Return the Communicator of this rank. All ranks must call it. Raises TrackError on all ranks if their options
    differ, or if a rank's GPU does not exist."""
    rank, size = dist.get_rank(), dist.get_world_size()
    asked = {name: str(value) for name, value in vars(args).items() if name not in NOT_COMPARED}
    local_rank, gpus = int(os.environ["LOCAL_RANK"]), args.gpu or devices.first(int(os.environ["LOCAL_WORLD_SIZE"]))
    problem = devices.problem(gpus)
    place = None if problem else (virtual_gpus.machine(), devices.place(gpus[local_rank]))
    options_of_all, nodes, problems, places = zip(*of_all_ranks((asked, current_node(), problem, place)))
    if found := next(filter(None, [options.difference(options_of_all), *problems]), None):
        raise TrackError(found, on_all_ranks=True)
    words = devices.describe(gpus, places)
    return Communicator(rank, size, local_rank, len(set(nodes)), devices.library(dist.get_backend_config()), words)


@contextlib.contextmanager
def gloo_group(args):
    """``with gloo_group(args) as comm``: form a process group on CPUs from ranks that mpiexec, torchrun or srun has
    started, for a program that is not a training script. args.patience has the same meaning as for
    options.begin_ranks."""
    options.begin_ranks(args.patience)
    dist.init_process_group("gloo")
    yield communicator(args)
    dist.destroy_process_group()


def announce(using, args, train_set):
    """Print the first lines of a training run, as banner.announce does, and start to record the use of devices. In a
    process group, rank 0 prints, and all ranks must call it. Raises TrackError."""
    if dist.is_initialized():
        comm = communicator(args)
        banner.announce(using, args, train_set, comm.devices, comm)
    else:
        banner.announce(using, args, train_set, devices.describe(args.gpu))


def stop_together(problem):
    """Raise TrackError on all ranks if any of them has a `problem` (a sentence, or None). All ranks must call it."""
    problems = of_all_ranks(problem) if dist.is_initialized() else [problem]
    if any(problems):
        raise TrackError(next(filter(None, problems)), on_all_ranks=True)
