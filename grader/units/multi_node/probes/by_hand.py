"""The probes of mpi_accuracy.py and from_scratch.py."""

import contextlib
import copy
import io
import os
import socket
import sys
import time
import timeit
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F

from grader.box.rank import Wrong
from grader.probes.marks import marks
from grader.probes.mpi import World
from grader.probes.pytorch import flat, join
from grader.probes.student import Student
from handson.pytorch import devices, workers
from handson.pytorch.model import ConvNet
from handson.training import data

MARKS = 4096  # marks are below this; images hold them divided by it, so that a network can train on them
MEETING = 600  # seconds; the box ends a run much earlier in which nothing computes


def accuracy(rank, ranks, source, case):
    """What a rank's `accuracy` returns. case["counts"]: (correct, images) of each rank."""
    join(rank, ranks)
    correct, images = case["counts"][rank]
    returned = Student(source).run(comm=World(rank, range(ranks)), correct=correct, images=images).returned
    if returned is None:
        return {"returned": None}
    return {"returned": float(returned)}


def from_scratch(rank, ranks, source, case):
    """What `main` does, started as torchrun starts it on nodes of two ranks: the images that the network trains on, the size of the process group
    meanwhile, the parameters at the beginning, after the first two steps and at the end, the gradients of this rank's first two batches, the GPUs
    that it uses, and what is printed. On its clock, a step takes a second, and nothing else any time."""
    local, of_node = rank % 2, min(2, ranks - rank // 2 * 2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(of_node), "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"GROUP_RANK": str(rank // 2), "GROUP_WORLD_SIZE": str(-(-ranks // 2))}
    os.environ |= {"MASTER_PORT": _port(rank), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    torch.set_num_threads(1)
    torch.manual_seed(1000 + rank)
    number = {int(mark): image for image, mark in enumerate(marks(case["images"], case["seed"], MARKS))}
    images = (torch.tensor(list(number)).float() / MARKS).reshape(-1, 1, 1, 1).expand(-1, 1, 8, 8).clone()
    sets = [data.ImageDataset(images, torch.arange(case["images"]) * 7 % 10, "pictures", None, tuple("0123456789"))] * 2
    models, batches, sizes, start = [], [], [], ConvNet.__init__

    def made(model, *arguments, **options):
        start(model, *arguments, **options)
        model.register_forward_pre_hook(before)
        models.append(model)

    def before(model, inputs):
        if model.training and torch.is_grad_enabled():
            sizes.append(dist.get_world_size() if dist.is_initialized() else 1)
            batches.append([number.get(round(float(image.mean()) * MARKS), -1) for image in inputs[0].detach().cpu()])
            if len(batches) <= 3:
                trace.append(flat(model.parameters()))
            if len(batches) <= 2:
                gradients.append(_gradient(model, inputs[0], batches[-1]))

    def use(gpu):
        gpus.append(int(gpu))
        return torch.device("cpu")

    def now():
        return begin + len(batches)

    trace, gradients, gpus, printed, begin = [], [], [], io.StringIO(), time.perf_counter()
    with contextlib.ExitStack() as patches:
        for place, name, stand_in in (
            (ConvNet, "__init__", made),
            (data, "load", lambda name: sets),
            (devices, "use", use),
            (workers, "destroy_group", lambda: None),  # it would end this process
            (dist, "destroy_process_group", lambda group=None: None),  # it would wait for the end of ranks, which are kept alive
            *((time, clock, now) for clock in ("time", "perf_counter", "monotonic", "process_time")),
            *((time, f"{clock}_ns", lambda: round(1e9 * now())) for clock in ("time", "perf_counter", "monotonic", "process_time")),
            (timeit, "default_timer", now),
        ):
            patches.enter_context(mock.patch.object(place, name, stand_in))
        patches.enter_context(contextlib.redirect_stdout(printed))
        student = Student(source).module
        for name in ("EPOCHS", "BATCHSIZE", "RATE", "SIZE"):
            setattr(student, name, case[name])
        if not hasattr(student, "main"):
            raise Wrong("there is no function `main`")
        student.main()
    sys.stdout.write(printed.getvalue())
    if not batches:
        raise Wrong("no ConvNet was trained")
    lines = [line for line in printed.getvalue().splitlines() if line.strip()]
    trace.append(flat(models[-1].parameters()))
    parameters = {"begin": trace[0], "second": trace[1], "third": trace[min(2, len(trace) - 1)], "end": trace[-1]}
    parameters |= {"gradient": gradients[0], "next gradient": gradients[-1]}
    return {"batches": batches, "size": min(sizes), "lines": lines[:20], "gpus": gpus} | parameters


def _gradient(model, images, numbers):
    """The gradient of the mean loss of a batch, as one array."""
    twin = copy.deepcopy(model)
    twin._forward_pre_hooks.clear()
    with torch.enable_grad():
        F.cross_entropy(twin(images.detach()), torch.tensor(numbers, device=images.device) * 7 % 10).backward()
    return flat(parameter.grad for parameter in twin.parameters())


def _port(rank):
    """A free port of this machine that rank 0 has found, as text."""
    place = Path("port")
    if rank == 0:
        with socket.create_server(("127.0.0.1", 0)) as free:
            Path("port.part").write_text(str(free.getsockname()[1]))
        Path("port.part").rename(place)
    end = time.monotonic() + MEETING
    while not place.exists() and time.monotonic() < end:
        time.sleep(0.005)
    return place.read_text()
