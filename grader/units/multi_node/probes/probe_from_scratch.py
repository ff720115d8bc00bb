"""The probes of mpi_accuracy.py and from_scratch.py."""

import contextlib
import copy
import io
import math
import os
import socket
import sys
import time
from pathlib import Path
from unittest import mock

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from grader.probes.gap_code import GapCode
from grader.probes.marks import marks
from grader.probes.pytorch_scripts import NOT_COMPILED, flat
from grader.probes.script import causes
from grader.sandbox.rank import StudentMistake
from grader.units.multi_node.probes import mpi_ranks
from handson.pytorch import devices
from handson.pytorch.model import ConvNet
from handson.training import data

MARKS = 4096  # marks are below this; images hold them divided by it, so that a network can train on them
MEETING = 600  # seconds; the sandbox ends a run much earlier in which nothing computes
TRIES = 400  # 5 ms apart
EVERY = 7  # one in 7 of the network's 71,706 numbers is observed: some of each channel, at all places of a kernel
LINES = 20  # the last lines of output, which are observed


def accuracy(rank, ranks, source, case):
    """Return the result of `accuracy` on each MPI rank. case["counts"]: (correct, images) of each rank."""
    return {"returned": mpi_ranks.run(source, case["counts"])}


def from_scratch(rank, ranks, source, case):
    """Run `main`, started as torchrun would start it on nodes with case["of_node"] ranks, and return

    - the images on which the network trains, and the size of the process group at that time
    - the layers that are in evaluation mode ("asleep")
    - some parameters before each step and at the end (steps + 1, numbers), and the gradients of this rank's batch for
      these parameters in each step (steps, numbers)
    - the GPUs that it uses, whether it leaves the group, and the last printed lines

    On the script's clock, a step takes case["seconds"], and other code takes no time.
    """
    node, local = [(node, local) for node, of_node in enumerate(case["of_node"]) for local in range(of_node)][rank]
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(case["of_node"][node]),
        "MASTER_ADDR": "127.0.0.1",
    }
    os.environ |= {"GROUP_RANK": str(node), "GROUP_WORLD_SIZE": str(len(case["of_node"]))}
    os.environ |= {"MASTER_PORT": _port(rank), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    torch.set_num_threads(1)
    torch.manual_seed(1000 + rank)
    number = {int(mark): image for image, mark in enumerate(marks(case["images"], case["seed"], MARKS))}
    images = (torch.tensor(list(number)).float() / MARKS).reshape(-1, 1, 1, 1).expand(-1, 1, 8, 8).clone()
    kind = "pictures", None, tuple("0123456789")
    sets = (
        data.ImageDataset(images, torch.arange(case["images"]) * 7 % 10, *kind),
        data.ImageDataset(torch.zeros(7, 1, 8, 8), torch.arange(7), *kind),
    )
    models, twins, batches, sizes, start = [], {}, [], [], ConvNet.__init__
    # more are too many, and are not noted
    steps = case["EPOCHS"] * math.ceil(case["images"] / ranks / case["BATCHSIZE"])

    def made(model, *arguments, **options):
        start(model, *arguments, **options)
        model.register_forward_pre_hook(before)
        models.append(model)
        twins[model] = ConvNet.__new__(ConvNet)
        with torch.random.fork_rng(devices=[]):
            start(twins[model], *arguments, **options)

    def before(model, inputs):
        if (shape := tuple(inputs[0].shape[1:])) != (3, case["SIZE"], case["SIZE"]):
            raise StudentMistake(
                f"the network gets images of shape {shape} instead of (3, {case['SIZE']}, {case['SIZE']}): enlarge each"
                " batch with data.enlarge(images, SIZE)"
            )
        if model.training and torch.is_grad_enabled():
            sizes.append(dist.get_world_size() if dist.is_initialized() else 1)
            asleep.update(type(layer).__name__ for layer in model.modules() if not layer.training)
            batches.append([_number(image, number) for image in inputs[0].detach().cpu()])
            if len(batches) <= steps + 1:
                trace.append(_some(model.parameters()))
            if len(batches) <= steps:
                # fully_shard allows no copies
                twin = twins[model] if isinstance(model, FSDPModule) else copy.deepcopy(model)
                gradients.append(_gradient(twin, model.parameters(), inputs[0], batches[-1]))

    def use(gpu):
        gpus.append(int(gpu))
        return torch.device("cpu")

    def shard(*arguments, **options):
        raise StudentMistake(
            "the check cannot read the parameters of a FullyShardedDataParallel: use DistributedDataParallel, or"
            " fully_shard, which is newer"
        )

    def destroy_process_group(group=None):
        left.append(group in (None, dist.group.WORLD))

    def now():
        return begin + case["seconds"] * len(batches)

    trace, gradients, gpus, left, asleep, printed, begin = [], [], [], [], set(), io.StringIO(), time.perf_counter()
    with contextlib.ExitStack() as patches:
        for place, name, stand_in in (
            (ConvNet, "__init__", made),
            (data, "load", lambda name: sets),
            (devices, "use", use),
            (sys, "argv", [source["file"]]),
            (FullyShardedDataParallel, "__init__", shard),
            *NOT_COMPILED,
            # it would wait for the end of ranks, which are kept alive
            (dist, "destroy_process_group", destroy_process_group),
            *((time, clock, now) for clock in ("time", "perf_counter", "monotonic")),
        ):
            patches.enter_context(mock.patch.object(place, name, stand_in))
        patches.enter_context(contextlib.redirect_stdout(printed))
        student = GapCode(source, instead={name: case[name] for name in ("EPOCHS", "BATCHSIZE", "RATE", "SIZE")}).module
        if not hasattr(student, "main"):
            raise StudentMistake("there is no function `main`")
        if rank > 0:
            _wait_for(int(os.environ["MASTER_PORT"]))
        with causes():
            student.main()
    sys.stdout.write(printed.getvalue())
    if not batches:
        raise StudentMistake("no ConvNet was trained")
    lines = [line for line in printed.getvalue().splitlines() if line.strip()]
    trace.append(_some(models[-1].parameters()))
    found = {"batches": batches, "size": min(sizes), "lines": lines[-LINES:], "gpus": gpus, "left": any(left)}
    return found | {"asleep": sorted(asleep), "parameters": numpy.stack(trace), "gradients": numpy.stack(gradients)}


def _number(image, number):
    """Return the number of the image that is marked with all of these numbers, or -1."""
    return number.get(round(float(image.mean()) * MARKS), -1) if float(image.max() - image.min()) * MARKS < 0.5 else -1


def _gradient(twin, parameters, images, numbers):
    """Return some of the gradient of a batch's mean loss, as one array. twin: a network of the same kind with these
    parameters."""
    twin._forward_pre_hooks.clear()
    with torch.no_grad():
        for own, parameter in zip(twin.parameters(), parameters):
            own.copy_(_whole(parameter))
            own.grad = None
    with torch.enable_grad():
        F.cross_entropy(twin(images.detach()), torch.tensor(numbers, device=images.device) * 7 % 10).backward()
    return _some(parameter.grad for parameter in twin.parameters())


def _whole(tensor):
    """Return a whole tensor, even if each rank has only a part of it, as with fully_shard."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _some(tensors):
    """Return some of the numbers of a network's tensors, in single precision, as the network stores them."""
    return flat(_whole(tensor) for tensor in tensors)[::EVERY].astype("float32")


def _port(rank):
    """Return a free port of this machine, chosen by rank 0, as a string."""
    place = Path("port")
    if rank == 0:
        with socket.create_server(("127.0.0.1", 0)) as free:
            Path("port.part").write_text(str(free.getsockname()[1]))
        Path("port.part").rename(place)
    end = time.monotonic() + MEETING
    while not place.exists() and time.monotonic() < end:
        time.sleep(0.005)
    return place.read_text()


def _wait_for(port):
    """Wait until rank 0 listens, but not for long, because rank 0 may choose another port. PyTorch would try again
    only after half a second."""
    for _ in range(TRIES):  # the clocks stand still here
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.005)
