"""The ranks of a JAX run, started by mpiexec: they agree on the address of JAX's coordinator with MPI, and JAX's gloo
sends the gradients."""

import os
import socket
from dataclasses import dataclass

from handson.jax import devices

import jax
from jax.experimental import multihost_utils

from handson import frameworks
from handson.cluster.nodes import current_node, meeting_address
from handson.errors import TrackError
from handson.training import mpi, options, progress, rank_watcher, virtual_gpus


@dataclass
class Communicator:
    """A rank's information on all ranks, with ChainerMN's names."""

    rank: int
    size: int
    intra_rank: int
    inter_size: int  # the number of nodes
    name: str  # the library that sends the gradients
    devices: str  # the devices of all ranks, in words


def meet(args):
    """Synchronise with the other ranks, assign a virtual GPU of the node to this one, and start JAX's distributed
    runtime. From now on, all ranks end together. Return a Communicator.

    args.gpu lists the ids for the ranks of a node. If it is None, it becomes 0, 1, ... MASTER_PORT can set the port.
    Raises TrackError.
    """
    rank_watcher.watch()
    world = mpi.start().COMM_WORLD
    from handson.training import all_ranks  # imports MPI, which must have been started

    all_ranks.install()
    asked = [
        {name: str(value) for name, value in of_rank.items() if name != "out"}
        for of_rank in world.allgather(vars(args))
    ]
    if difference := options.difference(asked):
        raise TrackError(difference, on_all_ranks=True)
    nodes = world.allgather(current_node())
    intra_rank, on_node = nodes[: world.rank].count(nodes[world.rank]), nodes.count(nodes[world.rank])
    args.gpu = args.gpu or list(range(on_node))
    if len(args.gpu) < max(map(nodes.count, nodes)):
        raise TrackError(
            f"-g names {len(args.gpu)} GPUs, but there are more ranks on a node: name one for each", on_all_ranks=True
        )
    devices.check(args.gpu)
    places = world.allgather((virtual_gpus.machine(), virtual_gpus.core_of(args.gpu[intra_rank])))
    devices.use([args.gpu[intra_rank]])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(_address(world), world.size, world.rank, initialization_timeout=mpi.MEETING)
    with frameworks.silently(1):  # gloo prints on standard output, in the first collective, that it is connected
        multihost_utils.sync_global_devices("meeting")
    progress.begin(args.patience)
    return Communicator(world.rank, world.size, intra_rank, len(set(nodes)), "gloo", virtual_gpus.describe(places))


def _address(world):
    """Return the address of rank 0's coordinator, which is equal on all ranks. Raises TrackError on all ranks."""
    host, port, problem = meeting_address(world), int(os.environ.get("MASTER_PORT") or 0), None
    if world.rank == 0:
        try:
            with socket.create_server(("", port)) as free:
                port = free.getsockname()[1]
        except OSError as error:
            problem = (
                f"MASTER_PORT {port} of {host} cannot be used ({error.strerror}): choose another, or unset it to get"
                " a free one"
            )
    host, port, problem = world.bcast((host, port, problem))
    if problem:
        raise TrackError(problem, on_all_ranks=True)
    return f"{host}:{port}"
