"""Ranks for tests: processes forked, in milliseconds, from one that has imported torch; joined by gloo in a process
group.

`run_ranks` runs any function on them; `train` is such a function, which runs the `train` of a solution and returns
what it did.
"""

import contextlib
import io
import json
import multiprocessing
import os
import tempfile
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from loading import load
from torch import nn

from handson.errors import OneSentence, say
from handson.notebook import measure
from handson.pytorch.communicator import Communicator
from handson.pytorch.model import ConvNet
from handson.training import data, launch, options

ROOT = Path(__file__).resolve().parents[2]
# unit -> its script that trains as the lecture's do, in the order of the units
SOLUTIONS = {
    path.parent.parent.name[3:]: path for path in sorted((ROOT / "solutions").glob("[0-9]*/pytorch/train_cifar_*.py"))
}
PATIENCE = 100  # seconds for anything that ought to take less than one

# Imported once, in the process that ranks are forked from. DistributedDataParallel would import torch._dynamo in every
# one.
context = measure.CONTEXT
context.set_forkserver_preload(
    [
        "pytest",
        "torch._dynamo",
        "torch.distributed.algorithms.join",
        "handson.pytorch.products",
        "handson.cntk",
        measure.__name__,
    ]
)


@dataclass
class Rank:
    """How a rank ended: what its function returned, its exit status (None: it was killed), what it printed."""

    value: object = None
    status: int | None = None
    out: str = ""
    errors: str = ""


def run_ranks(function, size, *arguments):
    """Call function(comm, *arguments) on `size` ranks; returns a Rank for each. When one is killed, so are all
    others."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        processes, connections = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_rank, args=(theirs, f"file://{folder}/meeting", rank, size, function, arguments)
            )
            process.start()
            stack.callback(lambda process=process: (process.kill(), process.join()))
            theirs.close()
            processes.append(process)
            connections.append(ours)
        ranks = [Rank() for _ in range(size)]
        waiting = dict(zip(connections, range(size)))
        while waiting:
            ready = multiprocessing.connection.wait(list(waiting), PATIENCE)
            assert ready, f"ranks {list(waiting.values())} of {size} have not finished in {PATIENCE} s"
            for connection in ready:
                try:
                    ranks[waiting.pop(connection)] = Rank(*connection.recv())
                except EOFError:
                    return ranks
        return ranks


def on_ranks(function, size, *arguments):
    """What function(comm, *arguments) returned on each of `size` ranks, all of which must end well."""
    ranks = run_ranks(function, size, *arguments)
    assert [rank.status for rank in ranks] == [0] * size, "\n".join(
        f"status {rank.status}: {rank.errors}" for rank in ranks
    )
    return [rank.value for rank in ranks]


def _rank(connection, meeting, rank, size, function, arguments):
    torch.set_num_threads(1)
    value, status, out, errors = None, 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            launch.loopback()
            os.environ.update(zip(launch.TORCHRUN, map(str, (rank, size, rank, size))))
            dist.init_process_group(
                "gloo", init_method=meeting, rank=rank, world_size=size, timeout=timedelta(seconds=PATIENCE)
            )
            value = function(Communicator(rank, size, intra_rank=rank, inter_size=1, name="gloo"), *arguments)
        except SystemExit as end:
            status = end.code
        except OneSentence as error:  # as options' excepthook does it
            status = error.status
            if rank == 0 or not getattr(error, "on_all_ranks", False):
                say(error)
        except BaseException:
            status = 1
            traceback.print_exc()
    connection.send((value, status, out.getvalue(), errors.getvalue()))
    with contextlib.suppress(EOFError):
        connection.recv()  # stay until all have finished, because an early exit fails the others
    os._exit(0)


def parse(task, words, size):
    """The options of a solution's command line `words`, as its train() gets them."""
    args = options.training_parser(SOLUTIONS[task], gpus=list(range(size))).parse_args([str(word) for word in words])
    args.devices = "devices of a test"
    return args


def image_set(samples, seed=0, size=16, classes=10):
    """Images of noise. Enlarged to their own size they do not change, and the first pixel identifies each
    image."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(samples, 3, size, size, generator=generator)
    images[:, 0, 0, 0] = torch.arange(samples) / 1024
    labels = torch.randint(classes, (samples,), generator=generator)
    return data.ImageDataset(images, labels, "Noise", Path("noise.npz"), tuple("0123456789"[:classes]))


class PlainNet(nn.Sequential):
    """A network without batch normalisation, but with a layer used twice and a layer that is not trained."""

    def __init__(self, classes=10):
        twice = nn.Linear(32, 32)
        frozen = nn.Conv2d(3, 8, 3, stride=2).requires_grad_(False)
        layers = [
            frozen,
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            twice,
            nn.Tanh(),
            twice,
            nn.Tanh(),
            nn.Linear(32, classes),
        ]
        super().__init__(*layers)


@dataclass
class Training:
    """What one rank did: its model at the beginning and at the end, the batches it trained on, its cores and threads,
    its log."""

    initial: dict
    final: dict
    batches: list
    cores: set
    threads: int
    log: list | None

    @property
    def samples(self):
        """The numbers of the images (see image_set) in each batch."""
        return [[round(pixel * 1024) for pixel in images[:, 0, 0, 0].tolist()] for images in self.batches]


def train(comm, task, words, train_set, test_set, make_model=None, seed=0):
    """Run the solution of `task` with the options `words`; returns a Training.

    Ranks start from different weights, as if their authors had forgotten to seed equally.
    """
    module = load(SOLUTIONS[task])
    args = parse(task, words, comm.size)
    make_model = make_model or ConvNet
    made, batches = [], []

    def watch(model, inputs):
        if model.training:
            batches.append(inputs[0].numpy().copy())

    def make(name, classes):
        torch.manual_seed(1000 * comm.rank + seed)
        model = make_model(classes)
        made.append((model, numbers(model)))
        model.register_forward_pre_hook(watch)
        return model

    module.get_model = make
    module.train(*([] if task == "single_gpu" else [comm.rank]), args, train_set, test_set)
    [(model, initial)] = made
    log = json.loads((args.out / "result.json").read_text())["log"] if comm.rank == 0 else None
    return Training(initial, numbers(model), batches, os.sched_getaffinity(0), torch.get_num_threads(), log)


def numbers(model):
    """The parameters and buffers of a model, as NumPy arrays that no longer change."""
    return {name: tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()}
