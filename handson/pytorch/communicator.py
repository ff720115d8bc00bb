"""The ranks of a multi-node run, started by mpiexec or torchrun: train_cifar_multi_node.py gets its communicator here.

The names are ChainerMN's: rank, size, intra_rank, scatter_dataset. The ranks first meet in a key-value store on rank 0
and compare what they were asked to do; only then does the script form the process group that the gradients go through.
"""

import json
import os
import socket
import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import torch
import torch.distributed as dist

from handson.cluster.nodes import current_node, meeting_address
from handson.errors import EndTogether, OneSentence, Stopped, TrackError, in_a_sentence, say
from handson.pytorch import devices, problems
from handson.pytorch.batches import division_problem
from handson.pytorch.workers import Communicator, leave, loopback, lost_peer, stop_together
from handson.training import data, mpi, options, progress, rank_watcher, virtual_gpus

MEETING = timedelta(seconds=mpi.MEETING)  # for all ranks to start and to find each other
NOT_COMPARED = {"out", "resume"}  # only rank 0 writes, and nodes may have their files in different places


@dataclass
class MultiNodeCommunicator(Communicator):
    """What a rank knows of all ranks, and what it can do together with them."""

    devices: str  # the devices of all ranks, in words
    backend: str  # for init_process_group
    store: object  # the key-value store in which the ranks have met

    def load_on_rank_0(self, args):
        """The training and the test set of `args.dataset` on rank 0, (None, None) on the others. Bad data ends all
        ranks."""
        sets, problem = (None, None), None
        if self.rank == 0:
            try:
                sets = data.load(args.dataset)
                problem = division_problem(len(sets[0]), self.size, args.batchsize)
            except data.DataError as error:
                problem = str(error)
        stop_together(problem)
        return sets


def scatter_dataset(dataset, comm, seed):
    """Deal rank 0's `dataset` to the ranks at random: each image goes to one rank, and the parts' sizes differ by one
    at most.

    The other ranks pass None. ChainerMN's function of this name (with `shuffle=True`) repeats images to make all parts
    equal.
    """
    parts = None
    if comm.rank == 0:
        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed))
        parts = [
            replace(dataset, images=dataset.images[part], labels=dataset.labels[part])
            for part in order.tensor_split(comm.size)
        ]
    return comm.scatter(parts)


@contextmanager
def meet(args):
    """``with meet(args) as comm``: meet the other ranks, and leave together with them. The block forms the process
    group.

    `args.gpu` lists the GPU ids for the ranks of a node; None becomes 0, 1, ... A rank that fails ends with a sentence
    that names it, and mpiexec or torchrun ends the others. Nothing after the block is executed.
    """
    rank_watcher.watch()
    comm = None
    try:
        comm = _join(args)
        progress.begin(args.patience)
        yield comm
        dist.barrier()
    except EndTogether as end:
        _finish(end.code)
    except SystemExit as end:
        if end.code:
            print(f"{rank_watcher.name()} ended with {end.code!r}; all ranks end", file=sys.stderr)
            leave(end.code if isinstance(end.code, int) else 1)
    except BaseException as error:
        error = in_a_sentence(error)
        if isinstance(error, Stopped):
            leave(error.status)
        if isinstance(error, OneSentence):
            problems.say_once(error, comm)
            leave(error.status)
        if lost_peer(error):
            print(f"{rank_watcher.name()} lost its connection to another rank, which has died", file=sys.stderr)
        else:
            traceback.print_exception(error)
            print(f"{rank_watcher.name()} failed; all ranks end", file=sys.stderr)
        leave(1)
    _finish(0)


def _started_by_torchrun():
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


def _launcher_variable(*names):
    return next((os.environ[name] for name in names if name in os.environ), None)


def _join(args):
    """Meet the other ranks, check that all were asked for the same, and settle who uses which device."""
    store, rank, size = _meet_by_environment() if _started_by_torchrun() else _meet_by_mpi()

    def everybody(what, mine):
        store.set(f"{what}/{rank}", json.dumps(mine))
        return [json.loads(store.get(f"{what}/{other}")) for other in range(size)]

    asked = everybody("asked", {name: str(value) for name, value in vars(args).items() if name not in NOT_COMPARED})
    _stop_for([options.difference(asked)], rank)

    nodes = everybody("node", current_node())
    intra_rank = nodes[:rank].count(nodes[rank])
    args.gpu = args.gpu or devices.first(nodes.count(nodes[rank]))
    _stop_for(everybody("problem", _gpu_problem(args.gpu, nodes, rank)), rank)
    places = [
        tuple(place) for place in everybody("place", [virtual_gpus.machine(), devices.place(args.gpu[intra_rank])])
    ]

    backend = devices.backend(places)
    if len(set(everybody("host", socket.gethostname()))) == 1:
        loopback()
    words, store = devices.describe(args.gpu, places), dist.PrefixStore("group", store)
    return MultiNodeCommunicator(
        rank, size, intra_rank, len(set(nodes)), devices.library(backend), words, backend, store
    )


def _gpu_problem(gpus, nodes, rank):
    ranks = nodes.count(nodes[rank])
    if len(gpus) < ranks:
        return (
            f"-g names {len(gpus)} GPU{'s' * (len(gpus) > 1)}, but there are {ranks} ranks on {nodes[rank]}: name one"
            " for each"
        )
    return devices.problem(gpus)


def _meet_by_environment():
    """torchrun's way: environment variables name the rank and the address of the store."""
    return next(dist.rendezvous("env://", timeout=MEETING))


def _meet_by_mpi():
    """mpiexec's way: rank 0 opens a store and sends its address to the others by MPI. MASTER_PORT can set the port."""
    MPI = mpi.start()
    world = MPI.COMM_WORLD
    promised = int(_launcher_variable("PMI_SIZE", "OMPI_COMM_WORLD_SIZE") or world.size)
    if promised != world.size:
        library = MPI.Get_library_version().splitlines()[0].strip()
        raise TrackError(
            f"mpiexec started {promised} ranks, but each is alone: mpi4py uses another MPI ({library}); put its mpiexec"
            " first on PATH"
        )
    address, port = meeting_address(world), int(os.environ.get("MASTER_PORT") or 0)
    store = problem = None
    if world.rank == 0:
        try:
            store = dist.TCPStore(address, port, world.size, is_master=True, wait_for_workers=False, timeout=MEETING)
            port = store.port
        except RuntimeError:
            problem = (
                f"MASTER_PORT {port} is in use on {current_node()}: choose another, or unset it to be given a free one"
            )
    address, port, problem = world.bcast((address, port, problem))
    _stop_for([problem], world.rank)
    store = store or dist.TCPStore(address, port, world.size, is_master=False, timeout=MEETING)
    return store, world.rank, world.size


def _stop_for(found, rank):
    """End all ranks with the first of the problems `found` (None: no problem), which are the same on all ranks. Rank 0
    prints it; the status is 2."""
    for problem in filter(None, found):
        if rank == 0:
            say(problem)
        raise EndTogether(2)


def _finish(status):
    """End this rank together with the others, after finalizing MPI."""
    if "mpi4py.MPI" in sys.modules:
        sys.modules["mpi4py.MPI"].Finalize()
    leave(status)
