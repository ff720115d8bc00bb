"""Probes of mesh.py: each gap on the real ranks of a mesh."""

import builtins
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Sampler

from grader.box.rank import Wrong
from grader.probes.pytorch import batch, flat, join, network
from grader.probes.student import Student

NAMES = "data", "tensor"
HASH = builtins.hash


def mesh(rank, ranks, source, case):
    """The ranks of this rank's group in both directions."""
    join(rank, ranks)
    made = Student(source).run(kind="cpu", **{name: case[name] for name in ("nodes", "ranks_of_a_node", "inside")}).mesh
    if not isinstance(made, DeviceMesh) or set(made.mesh_dim_names or ()) != set(NAMES):
        raise Wrong(f"`mesh` should be a DeviceMesh with the dimensions \"data\" and \"tensor\"; it is {str(made):.100}")
    return {name: sorted(dist.get_process_group_ranks(made.get_group(name))) for name in NAMES}


def given_mesh(case):
    """The mesh of the case: case["layout"] has the numbers of the ranks, case["names"] the names of its two dimensions."""
    return DeviceMesh("cpu", case["layout"], mesh_dim_names=tuple(case["names"]))


def sampler(rank, ranks, source, case):
    """The numbers of this rank's images, and those with another seed."""
    join(rank, ranks)
    student, mesh, found = Student(source), given_mesh(case), []
    for seed in case["seed"] % 1000, case["seed"] % 1000 + 1:
        made = student.run(train_set=list(range(case["images"])), mesh=mesh, seed=seed).sampler
        if not isinstance(made, Sampler):
            raise Wrong(f"`sampler` is a {type(made).__name__}, not a DistributedSampler")
        found.append([int(number) for number in made])
    return {"images": found[0], "other": found[1]}


def places(rank, case):
    """(which part of the images, which part of the model) the case's mesh gives to a rank."""
    where = [row.index(rank) for row in case["layout"] if rank in row][0], next(number for number, row in enumerate(case["layout"]) if rank in row)
    of_dimension = dict(zip(case["names"], reversed(where)))
    return of_dimension["data"], of_dimension["tensor"]


def own_gradients(case, rank):
    """The parameters of a rank, and the gradients that it computes alone."""
    images_of, part_of = places(rank, case)
    model = network(case["seed"] + part_of)
    images, labels = batch(case["seed"], 0, [3] * len(sum(case["layout"], [])), images_of)
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    return flat(model.parameters()), flat(parameter.grad for parameter in model.parameters())


def replica(rank, ranks, source, case):
    """The parameters of this rank's part, and their gradients after a backward pass of the replica."""
    join(rank, ranks)
    images_of, part_of = places(rank, case)
    model = network(case["seed"] + part_of)
    made = Student(source).run(model=model, mesh=given_mesh(case)).replica
    if not isinstance(made, DistributedDataParallel):
        raise Wrong(f"`replica` is a {type(made).__name__}; DistributedDataParallel averages the gradients")
    images, labels = batch(case["seed"], 0, [3] * ranks, images_of)
    torch.nn.functional.cross_entropy(made(images), labels).backward()
    dist.barrier()
    gradients = [parameter.grad for parameter in model.parameters()]
    if any(gradient is None for gradient in gradients):
        raise Wrong("`model` itself has no gradients after backward of the replica: give DistributedDataParallel this model, and not a copy")
    return {"parameters": flat(model.parameters()), "gradients": flat(gradients)}


def dropout(rank, ranks, source, case):
    """Random numbers of this rank with each of two seeds, and again with the first one."""
    join(rank, ranks)
    student = Student(source)

    def drawn(seed, of_text):
        torch.default_generator.manual_seed(12345)  # which shows whether the gap does anything
        with mock.patch.object(builtins, "hash", lambda value: HASH((of_text, value)) if isinstance(value, (str, bytes)) else HASH(value)):
            student.run(seed=seed, rank=rank)
        return torch.rand(4).tolist()

    seeds = case["seed"] % 1000, case["seed"] % 1000 + 1
    return {name: drawn(seed, name) for name, seed in zip(("first", "second", "again"), (*seeds, seeds[0]))}  # hashes of texts are others in each run
