"""What the tests of ChainerMN's communicator have ranks do."""

import os

import numpy
from mpi4py import MPI

from grader.probes.chainer_scripts import flat, network
from grader.probes.gloo_for_chainermn import join


def state(rank, ranks):
    """Whether MPI has begun in a rank, and its threads."""
    return {"mpi": MPI.Is_initialized(), "threads": len(os.listdir("/proc/self/task"))}


def talk(rank, ranks):
    """What each rank gets of the others, by all that the course uses."""
    comm = join(rank, ranks, ranks_per_node=2)
    model = network(rank)
    comm.bcast_data(model)
    parameters = flat(model)
    for parameter in model.params():
        parameter.grad = numpy.full_like(parameter.array, rank)
    comm.multi_node_mean_grad(model)
    if rank == 0:
        for other in range(1, ranks):
            comm.send_obj({"to": other}, other)
    return {
        "ranks": [comm.rank, comm.size, comm.intra_rank, comm.intra_size, comm.inter_rank, comm.inter_size],
        "parameters": parameters,
        "mean": sorted(set(flat(model, "grad"))),
        "received": comm.recv_obj(0) if rank else None,
        "broadcast": comm.bcast_obj("of rank 0" if rank == 0 else None),
        "gathered": comm.gather_obj(rank),
        "sum": comm.allreduce_obj(rank + 1),
        "all": comm.mpi_comm.allgather(rank),
        "dealt": comm.mpi_comm.scatter([10, 11, 12] if rank == 0 else None),
    }
