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
    ### BEGIN SOLUTION mesh:
    ### `mesh`: init_device_mesh(kind, shape, mesh_dim_names=names). Ranks that follow each other
    ### are on one node, and follow each other in the last dimension
    names = ("data", "tensor") if inside == "tensor" else ("tensor", "data")
    mesh = init_device_mesh(kind, (nodes, ranks_of_a_node), mesh_dim_names=names)
    ### END SOLUTION
    return mesh


def make_sampler(train_set, mesh, seed):
    """The images of this rank."""
    ### BEGIN SOLUTION sampler:
    ### `sampler`: DistributedSampler(train_set, parts, part, seed=seed), where ranks with the same
    ### images take the same part. mesh["data"].size() and mesh.get_local_rank("data") say where a
    ### rank stands
    parts, part = mesh["data"].size(), mesh.get_local_rank("data")
    sampler = DistributedSampler(train_set, parts, part, seed=seed)
    ### END SOLUTION
    return sampler


def make_replica(model, mesh):
    """`model`, this rank's part of the model, with gradients that are means over all images."""
    ### BEGIN SOLUTION replica:
    ### `replica`: DistributedDataParallel(model, process_group=...), for the ranks with the same
    ### part; mesh.get_group(name) is the group of this rank in one direction
    replica = DistributedDataParallel(model, process_group=mesh.get_group("data"))
    ### END SOLUTION
    return replica


def seed_dropout(seed, rank):
    """From now on, this rank draws random numbers for dropout. Ranks that share a model drop other units, since they
    have other units."""
    ### BEGIN SOLUTION dropout:
    ### torch.manual_seed with a number that follows from `seed`, and differs from rank to rank
    torch.manual_seed(1000 * seed + rank)
    ### END SOLUTION
