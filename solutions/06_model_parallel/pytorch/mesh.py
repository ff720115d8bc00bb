"""Two kinds of parallelism at once: train_mesh.py calls these functions, in this order.

The ranks form a mesh with one row per node. In one dimension they share a model (tensor parallel), in the other
dimension they share the images (data parallel). Ranks that share a model have the same images, and ranks that share the
images have the same part of the model.
"""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler


def make_mesh(kind, nodes, ranks_of_a_node, inside):
    """Return the mesh, with the dimensions "data" and "tensor".

    kind: the kind of the devices, "cpu" or "cuda"; inside: the dimension that the ranks of one node form, "tensor"
    (they share a model) or "data" (they share the images).
    """
    ### BEGIN SOLUTION mesh:
    ### Set `mesh` to init_device_mesh(kind, shape, mesh_dim_names=names). Consecutive ranks are on
    ### one node, and they are neighbours in the last dimension
    names = ("data", "tensor") if inside == "tensor" else ("tensor", "data")
    mesh = init_device_mesh(kind, (nodes, ranks_of_a_node), mesh_dim_names=names)
    ### END SOLUTION
    return mesh


def make_sampler(train_set, mesh, seed):
    """Return the sampler of this rank's images."""
    ### BEGIN SOLUTION sampler:
    ### Set `sampler` to DistributedSampler(train_set, parts, part, seed=seed). Ranks that share a
    ### model need the same part. Use mesh["data"].size() and mesh.get_local_rank("data")
    parts, part = mesh["data"].size(), mesh.get_local_rank("data")
    sampler = DistributedSampler(train_set, parts, part, seed=seed)
    ### END SOLUTION
    return sampler


def make_replica(model, mesh):
    """Return `model`, this rank's part of the model, wrapped so that its gradients are averaged over all images."""
    ### BEGIN SOLUTION replica:
    ### Set `replica` to DistributedDataParallel(model, process_group=...) with the group of the
    ### ranks that have the same part of the model. mesh.get_group(name) returns this rank's group
    ### in one dimension
    replica = DistributedDataParallel(model, process_group=mesh.get_group("data"))
    ### END SOLUTION
    return replica


def seed_dropout(seed, rank):
    """Seed the random numbers that this rank draws for dropout. Ranks that share a model have different units, so they
    need different random numbers."""
    ### BEGIN SOLUTION dropout:
    ### Call torch.manual_seed with a number that depends on `seed` and differs between any two
    ### ranks
    torch.manual_seed(1000 * seed + rank)
    ### END SOLUTION
