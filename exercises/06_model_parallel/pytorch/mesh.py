"""Two kinds of parallelism at once: train_mesh.py calls these functions, in this order.

The ranks stand in a mesh, a row for each node. In one direction they share a model (tensor parallel), in the other one
they share the images (data parallel): ranks that share a model have the same images, and ranks that share the images
have the same part of the model.
"""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler


def make_mesh(kind, nodes, ranks_of_a_node, inside):
    """The mesh, with the dimensions "data" and "tensor". kind: of the devices, "cpu" or "cuda"; inside: what the ranks
    of one node do together, "tensor" (share a model) or "data" (share the images)."""
    # PUT YOUR CODE: `mesh`: init_device_mesh(kind, shape, mesh_dim_names=names). Ranks that follow each
    # other are on one node, and follow each other in the last dimension
    raise NotImplementedError("PUT YOUR CODE: mesh")
    return mesh


def make_sampler(train_set, mesh, seed):
    """The images of this rank."""
    # PUT YOUR CODE: `sampler`: DistributedSampler(train_set, parts, part, seed=seed), where ranks with
    # the same images take the same part. mesh["data"].size() and mesh.get_local_rank("data") say where a
    # rank stands
    raise NotImplementedError("PUT YOUR CODE: sampler")
    return sampler


def make_replica(model, mesh):
    """`model`, this rank's part of the model, with gradients that are means over all images."""
    # PUT YOUR CODE: `replica`: DistributedDataParallel(model, process_group=...), for the ranks with the
    # same part; mesh.get_group(name) is the group of this rank in one direction
    raise NotImplementedError("PUT YOUR CODE: replica")
    return replica


def seed_dropout(seed, rank):
    """From now on, this rank draws random numbers for dropout. Ranks that share a model drop other units, since they
    have other units."""
    # PUT YOUR CODE: torch.manual_seed with a number that follows from `seed`, and differs from rank to
    # rank
    raise NotImplementedError("PUT YOUR CODE: dropout")
