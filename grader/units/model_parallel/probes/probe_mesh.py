"""Probes of mesh.py: each gap runs on the real ranks of a mesh."""

import builtins
import contextlib
from types import SimpleNamespace
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Sampler

from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import batch, flat, join, network
from grader.sandbox.rank import StudentMistake
from handson.words import a_kind

NAMES = "data", "tensor"
HASH = builtins.hash
BEFORE = 12345  # the seed of the generator that the gap finds
MANY = 16  # ranks


def mesh(rank, ranks, source, case):
    """Return the ranks of this rank's group in both directions."""
    join(rank, ranks)
    # so a mesh of GPUs needs none
    with mock.patch.multiple(torch.cuda, device_count=lambda: 0, set_device=lambda device: None):
        made = GapCode(source).run(**{name: case[name] for name in ("kind", "nodes", "ranks_of_a_node", "inside")}).mesh
    if not isinstance(made, DeviceMesh) or set(made.mesh_dim_names or ()) != set(NAMES):
        raise StudentMistake(
            f'`mesh` should be a DeviceMesh with the dimensions "data" and "tensor", but it is {str(made):.100}'
        )
    if made.device_type != case["kind"]:
        raise StudentMistake(
            f"`mesh` has {made.device_type!r} devices, but `kind` is {case['kind']!r}: pass `kind` to init_device_mesh"
        )
    return {name: sorted(dist.get_process_group_ranks(made.get_group(name))) for name in NAMES}


def given_mesh(case):
    """Return the mesh of the case: case["layout"] contains the numbers of the ranks, and case["names"] the names of
    its two dimensions."""
    return DeviceMesh("cpu", case["layout"], mesh_dim_names=tuple(case["names"]))


def sampler(rank, ranks, source, case):
    """Return the numbers of this rank's images with the given seed, with another seed, and in the next epoch."""
    join(rank, ranks)
    student, mesh, found = GapCode(source), given_mesh(case), []
    for seed in case["seed"] % 1000, case["seed"] % 1000 + 1:
        made = student.run(train_set=list(range(case["images"])), mesh=mesh, seed=seed).sampler
        if not isinstance(made, Sampler):
            raise StudentMistake(f"`sampler` is {a_kind(made)}, not a DistributedSampler")
        if not hasattr(made, "set_epoch"):
            raise StudentMistake(
                f"`sampler` is {a_kind(made)} without set_epoch, which train_mesh.py calls in each epoch; a"
                " DistributedSampler has it"
            )
        for epoch in range(2):
            made.set_epoch(epoch)
            found.append([int(number) for number in made])
    return {"images": found[0], "next": found[1], "other": found[2]}


def places(rank, case):
    """Return which part of the images and which part of the model the case's mesh gives to a rank."""
    where = (
        [row.index(rank) for row in case["layout"] if rank in row][0],
        next(number for number, row in enumerate(case["layout"]) if rank in row),
    )
    of_dimension = dict(zip(case["names"], reversed(where)))
    return of_dimension["data"], of_dimension["tensor"]


def own_gradients(case, rank):
    """Return the parameters of a rank, and the gradients that it computes by itself."""
    images_of, part_of = places(rank, case)
    model = network(case["seed"] + part_of)
    images, labels = batch(case["seed"], 0, [3] * len(sum(case["layout"], [])), images_of)
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    return flat(model.parameters()), flat(parameter.grad for parameter in model.parameters())


def replica(rank, ranks, source, case):
    """Return the parameters of this rank's part, and their gradients after a backward pass of the replica."""
    join(rank, ranks)
    images_of, part_of = places(rank, case)
    model = network(case["seed"] + part_of)
    made = GapCode(source).run(model=model, mesh=given_mesh(case)).replica
    if not isinstance(made, DistributedDataParallel):
        raise StudentMistake(f"`replica` is {a_kind(made)}, but it should be a DistributedDataParallel")
    images, labels = batch(case["seed"], 0, [3] * ranks, images_of)
    torch.nn.functional.cross_entropy(made(images), labels).backward()
    dist.barrier()
    gradients = [parameter.grad for parameter in model.parameters()]
    if any(gradient is None for gradient in gradients):
        raise StudentMistake(
            "`model` has no gradients after backward of the replica: pass `model` itself to DistributedDataParallel,"
            " not a copy"
        )
    return {"parameters": flat(model.parameters()), "gradients": flat(gradients)}


def dropout(rank, ranks, source, case):
    """Return the random numbers of this rank with each of two seeds, with the first seed again, and with seed 0;
    "many": the random numbers of each rank of a large job; "untouched": whether the gap leaves the generator
    unchanged; and "gpus": the seeds that GPUs get for the first seed, for the second, and for the first again."""
    join(rank, ranks)
    student, gpus, seeds = (
        GapCode(source),
        [],
        {"first": case["seed"] % 1000, "second": case["seed"] % 1000 + 1, "again": case["seed"] % 1000, "zero": 0},
    )
    noting = {name: lambda seed: gpus.append(int(seed)) for name in ("manual_seed", "manual_seed_all")}

    def drawn(seed, of_text, rank=rank):
        torch.default_generator.manual_seed(BEFORE)
        with mock.patch.object(
            builtins, "hash", lambda value: HASH((of_text, value)) if isinstance(value, (str, bytes)) else HASH(value)
        ):
            with mock.patch.object(dist, "get_rank", lambda group=None: rank):
                student.run(seed=seed, rank=rank)
        return torch.rand(4).tolist()

    def of_gpus(name):
        gpus.clear()
        drawn(seeds[name], name)
        return gpus[-1:]

    found = {name: drawn(seed, name) for name, seed in seeds.items()}  # hashes of texts are others in each run
    found["many"] = [drawn(seeds["second"], "many", one) for one in range(MANY)]
    found["untouched"] = found["first"] == torch.rand(4, generator=torch.Generator().manual_seed(BEFORE)).tolist()
    noting["default_generators"] = [SimpleNamespace(manual_seed=noting["manual_seed"])]
    with mock.patch.multiple(
        torch.cuda, is_available=lambda: True, device_count=lambda: 1, current_device=lambda: 0, **noting
    ):
        with contextlib.suppress(Exception):  # there is no GPU: code that asks for one in another way is believed
            return found | {"gpus": [of_gpus(name) for name in ("first", "second", "again")]}
    return found | {"gpus": [[rank], [rank + 1], [rank]]}
