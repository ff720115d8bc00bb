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
    # PUT YOUR CODE: Set `mesh` to init_device_mesh(kind, shape, mesh_dim_names=names). Consecutive ranks
    # are on one node, and they are neighbours in the last dimension
    raise NotImplementedError("PUT YOUR CODE: mesh")
    return mesh


def make_sampler(train_set, mesh, seed):
    """Return the sampler of this rank's images."""
    # PUT YOUR CODE: Set `sampler` to DistributedSampler(train_set, parts, part, seed=seed). Ranks that
    # share a model need the same part. Use mesh["data"].size() and mesh.get_local_rank("data")
    raise NotImplementedError("PUT YOUR CODE: sampler")
    return sampler


def make_replica(model, mesh):
    """Return `model`, this rank's part of the model, wrapped so that its gradients are averaged over all images."""
    # PUT YOUR CODE: Set `replica` to DistributedDataParallel(model, process_group=...) with the group of
    # the ranks that have the same part of the model. mesh.get_group(name) returns this rank's group in
    # one dimension
    raise NotImplementedError("PUT YOUR CODE: replica")
    return replica


def seed_dropout(seed, rank):
    """Seed the random numbers that this rank draws for dropout. Ranks that share a model have different units, so they
    need different random numbers."""
    # PUT YOUR CODE: Call torch.manual_seed with a number that depends on `seed` and differs between any
    # two ranks
    raise NotImplementedError("PUT YOUR CODE: dropout")
