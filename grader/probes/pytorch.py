"""Probes for the PyTorch track: each runs the code of one gap with inputs of its own."""

import os
from types import SimpleNamespace
from unittest import mock

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from grader.box.rank import Wrong
from grader.probes import whole
from grader.probes.marks import marks, told
from grader.probes.student import Student
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.pytorch.workers import Communicator
from handson.training.data import ImageDataset


def join(rank, ranks, ranks_per_node=None):
    """Form a process group and return this rank's communicator. Every rank gets another random seed, as in real runs."""
    if not dist.is_initialized():  # one group serves all cases that run in these ranks
        torch.set_num_threads(1)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=rank, world_size=ranks)
    torch.manual_seed(1000 + rank)
    per_node = ranks_per_node or ranks
    return Communicator(rank, ranks, rank % per_node, -(-ranks // per_node), "gloo")


def dataset(images, seed=0):
    """A data set of (1, 2, 2) images. All numbers of image i are its mark, so that each sample can be recognised."""
    marked = torch.from_numpy(marks(images, seed)).float().reshape(-1, 1, 1, 1)
    return ImageDataset(marked.expand(-1, 1, 2, 2), torch.arange(images) % 10, "numbers", None, tuple("0123456789"))


def samples(shard, case):
    """The numbers of the samples in a shard of the case's `dataset`."""
    return told([shard[index][0].flatten()[0] for index in range(len(shard))], case["images"], case["seed"])


def network(seed):
    """A small network in double precision, always the same for a seed: (N, 1, 2, 2) to (N, 10)."""
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 10)).double()
    torch.set_rng_state(state)
    return model


def normalizing_network(seed):
    """As `network`, with batch normalisation whose running statistics come from other images."""
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 10)).double()
    model(1 + 2 * torch.randn(50, 1, 2, 2, dtype=torch.float64))
    torch.set_rng_state(state)
    return model


def batch(seed, step, lengths, rank):
    """Images and labels of rank `rank` in step `step`. lengths: the number of images of each rank."""
    generator = torch.Generator().manual_seed(seed + 7919 * step)
    images = torch.randn(sum(lengths), 1, 2, 2, dtype=torch.float64, generator=generator)
    labels = torch.randint(10, (sum(lengths),), generator=generator)
    return images.split(list(lengths))[rank], labels.split(list(lengths))[rank]


def flat(tensors):
    """All numbers of some tensors, as one NumPy array."""
    return torch.cat([tensor.detach().flatten().double() for tensor in tensors]).numpy()


def device(rank, ranks, source, case):
    """The GPU that each rank of several nodes would use. case["gpu"]: the GPUs of one node."""
    used = []

    def use(gpu):
        used.append(int(gpu))
        return torch.device("cuda", int(gpu))

    student, chosen = Student(source), []
    for number in range(case["workers"]):
        comm = Communicator(number, case["workers"], number % len(case["gpu"]), 1, "gloo")
        try:
            names = student.run(args=SimpleNamespace(gpu=list(case["gpu"])), comm=comm, devices=SimpleNamespace(use=use))
        except IndexError:
            where = f"rank {number}, of intra_rank {comm.intra_rank},"
            raise Wrong(f"{where} finds no GPU at its place in args.gpu, which lists those of one node: {case['gpu']}") from None
        made = torch.device(names.device)
        chosen.append(made.index if made.index is not None else -1)
    return {"gpu": chosen}


def split(rank, ranks, source, case):
    """The shard and the lengths of one rank. case["dealt"]: only rank 0 has the data."""
    comm = join(rank, ranks)
    data = dataset(case["images"], case["seed"]) if rank == 0 or not case.get("dealt") else None
    names = Student(source).run(train_set=data, comm=comm, args=SimpleNamespace(seed=case["seed"] % 1000))
    return {"samples": samples(names.shard, case), "lengths": [int(length) for length in names.lengths]}


def replica(rank, ranks, source, case):
    """The parameters at the start and the gradients after a backward pass of the wrapped model. Each rank's network has other parameters
    before it is wrapped."""
    join(rank, ranks)
    model = network(case["seed"] + rank)
    names = Student(source).run(model=model, device=torch.device("cpu"))
    start = flat(model.parameters())
    images, labels = batch(case["seed"], 0, case["lengths"], rank)
    F.cross_entropy(names.replica(images), labels).backward()
    if any(parameter.grad is None for parameter in model.parameters()):
        raise Wrong("after backward, parameters of `model` have no gradients: the wrapper must hold `model` itself")
    return {"start": start, "gradients": flat(parameter.grad for parameter in model.parameters())}


def shuffle(rank, ranks, source, case):
    """The order of the samples in each of four epochs, and in epoch 2 of a run that was resumed there."""
    student = Student(source)

    def orders(epochs):
        batches = EpochBatches(case["lengths"], case["rank"], case["batchsize"], case["seed"] % 1000)
        loader = DataLoader(dataset(case["lengths"][case["rank"]]), batch_sampler=batches)
        orders = []
        for epoch in epochs:
            student.run(epoch=epoch, batches=batches, train_loader=loader)
            orders.append([int(sample) for batch in batches for sample in batch])
        return orders

    return {"parts": [list(range(case["lengths"][case["rank"]]))], "orders": [orders(range(4))], "resumed": orders([2])[0]}


def step(rank, ranks, source, case):
    """The parameters after each training step, and the losses, on one rank or on several ranks with unequal batches."""
    several = "lengths" in case and len(case["lengths"]) == ranks
    comm = join(rank, ranks) if several else None
    lengths = case["lengths"]
    model = network(case["seed"])
    given = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9), "F": F, "torch": torch}
    if case.get("distributed"):
        given |= {"replica": DistributedDataParallel(model), "comm": comm, "total": sum(lengths)}
    student, trace, losses = Student(source), [], []
    for number in range(case["steps"]):
        images, labels = batch(case["seed"], number, lengths, rank)
        names = student.run(**given, images=images, labels=labels)
        trace.append(flat(model.parameters()))
        losses.append(float(names.loss.detach()))
        if tuple(names.outputs.shape) != (len(labels), 10):
            raise Wrong(f"`outputs` should have a row for each of the {len(labels)} images; its shape is {tuple(names.outputs.shape)}")
    return {"parameters": numpy.stack(trace), "losses": losses}


def throughput(rank, ranks, source, case):
    """`images` and `throughput` as each rank would report them."""
    student, found, size = Student(source), [], len(case["lengths"])
    for number, length in enumerate(case["lengths"]):
        batches = EpochBatches(case["lengths"], number, case["batchsize"], 0)
        names = student.run(
            args=SimpleNamespace(epoch=case["epoch"], batchsize=case["batchsize"]),
            first_epoch=case["first_epoch"],
            seconds=case["seconds"],
            train_set=dataset(sum(case["lengths"]) if size == 1 or not case.get("dealt") or number == 0 else 0),
            shard=dataset(length),
            lengths=list(case["lengths"]),
            comm=Communicator(number, size, number, 1, "gloo"),
            batches=batches,
            train_loader=DataLoader(dataset(length), batch_sampler=batches),
        )
        found.append([float(names.images), float(names.throughput)])
    return {"found": found}


def pictures(images, alike, seed):
    """A data set of (1, 8, 8) images. alike: all images are equal, so that the result does not depend on which rank gets which image."""
    generator = torch.Generator().manual_seed(seed)
    shown = torch.rand(images, 1, 8, 8, generator=generator)
    labels = torch.randint(10, (images,), generator=generator)
    return ImageDataset(shown[:1].expand_as(shown).clone() if alike else shown, labels, "pictures", None, tuple("0123456789"))


def run(rank, ranks, source, case):
    """What a whole run of `train` prints and writes, and its parameters at the end."""
    models, start = [], ConvNet.__init__

    def note(model, *args, **options):
        start(model, *args, **options)
        models.append(model)

    seed = case["seed"] % 1000
    args = SimpleNamespace(workers=ranks, nodes=1, unit=case["task"], script=f"train_cifar_{case['task']}", track="pytorch", dataset="pictures", size=64)
    vars(args).update(batchsize=case["batchsize"], epoch=case["epochs"], lr=0.02, seed=seed, resume=None, gpu=list(range(ranks)), devices=f"{ranks} virtual GPUs")
    sets = pictures(case["images"], case["task"] != "single_gpu", seed), pictures(7, False, seed)
    if case["task"] == "multi_node" and rank > 0:
        sets = None, None
    comm = [] if case["task"] == "single_gpu" else [join(rank, ranks, case.get("ranks_per_node"))]
    with mock.patch.object(ConvNet, "__init__", note):
        observations = whole.run(source, args, comm, sets)
    if not models:
        raise Wrong("no ConvNet was made")
    return observations | {"parameters": flat(models[-1].parameters())}
