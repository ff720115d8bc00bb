"""Probes for the scripts that are profiled. They count what a training does, so that the result does not depend on a clock."""

import collections
import contextlib
import mmap
import tempfile
import zlib
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F

from grader.box.rank import Wrong
from grader.probes.marks import marks as marks_of
from grader.probes.pytorch import batch, flat, join, network
from grader.probes.student import Student
from handson.pytorch.model import ConvNet
from handson.training import results
from handson.training.data import ImageDataset

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_reduce_coalesced", "all_to_all", "barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "recv", "reduce", "reduce_scatter", "scatter",
    "scatter_object_list", "send",
)  # fmt: skip
SIZE = 64  # pixels of an image in a file
MARKS = 4096  # marks are below this; images hold them divided by it, so that a network can train on them
LR = 0.002  # low, so that rounding errors stay small


def marks(rank, ranks, source, case):
    """For each training step: the ranges that it entered, those that it left open, and those that were open during each part of its work.
    Also the parameters after each step."""
    comm, lengths = join(rank, ranks), case["lengths"]
    model = network(case["seed"])
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    ranges = Ranges()
    ranges.watch(model, optimizer)
    steps, trace = [], []
    with ranges.instead_of_torchs():
        student = Student(source)
        for number in range(case["steps"]):
            images, labels = batch(case["seed"], number, lengths, rank)
            student.run(model=model, optimizer=optimizer, images=images, labels=labels, comm=comm)
            steps.append(ranges.taken())
            trace.append(flat(model.parameters()))
    return {"steps": steps, "parameters": numpy.stack(trace)}


class Ranges:
    """Replaces torch's ranges (record_function and NVTX), and notes which ranges are open during each part of a step's work."""

    def __init__(self):
        self.open, self.entered, self.work = [], [], []

    def push(self, name):
        self.entered.append(str(name))
        self.open.append(str(name))

    def pop(self):
        if self.open:
            self.open.pop()

    def note(self, what):
        if (what, self.open) not in self.work:
            self.work.append((what, list(self.open)))

    def taken(self):
        """What was noted since the last call."""
        entered = [name for name in self.entered if not name.startswith("Optimizer.")]  # torch itself enters a range of this name
        found = {"entered": entered, "open": list(self.open), "work": [list(one) for one in self.work]}
        self.entered, self.work = [], []
        self.open.clear()
        return found

    def watch(self, model, optimizer):
        """Note the open ranges where the work of `model` and `optimizer` begins and where it ends."""
        for hook in (model.register_forward_pre_hook, model.register_forward_hook):
            hook(lambda *seen: self.note("the network's forward pass"))
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda parameter: self.note("loss.backward()"))
        for hook in (optimizer.register_step_pre_hook, optimizer.register_step_post_hook):
            hook(lambda *seen: self.note("optimizer.step()"))

    @contextlib.contextmanager
    def instead_of_torchs(self):
        ranges = self

        class Range(contextlib.ContextDecorator):
            def __init__(self, name, args=None):
                self.name = name

            def __enter__(self):
                ranges.push(self.name)
                return self

            def __exit__(self, *failure):
                ranges.pop()

        def noted(function, what):
            def call(*arguments, **options):
                ranges.note(what)
                return function(*arguments, **options)

            return call

        with contextlib.ExitStack() as patches:
            for place, name, stand_in in (
                (torch.profiler, "record_function", Range),
                (torch.autograd.profiler, "record_function", Range),
                (torch.cuda.nvtx, "range", Range),
                (torch.cuda.nvtx, "range_push", self.push),
                (torch.cuda.nvtx, "range_pop", self.pop),
                (dist, "all_reduce", noted(dist.all_reduce, "the all-reduce")),
                (F, "cross_entropy", noted(F.cross_entropy, "the loss")),
            ):
                patches.enter_context(mock.patch.object(place, name, stand_in))
            yield


def training(rank, ranks, source, case):
    """What a script's whole `train` does: the images of each step; how often each image is decoded, each collective is called ("meetings"),
    and numbers are fetched from the device; the losses that it reports, and the parameters at the end."""
    seen, models, start = Counts(case), [], ConvNet.__init__

    def note(model, *arguments, **options):
        start(model, *arguments, **options)
        model.register_forward_pre_hook(seen.batch)
        models.append(model)

    comm, seed, out = join(rank, ranks), case["seed"] % 1000, Path(tempfile.mkdtemp(dir="."))
    args = SimpleNamespace(unit="profiling", script="profiled", track="pytorch", workers=ranks, nodes=1, dataset="pictures", size=64, batchsize=case["batchsize"], epoch=case["epochs"])
    vars(args).update(lr=LR, seed=seed, out=out, gpu=list(range(ranks)), devices=f"{ranks} virtual GPUs")
    with mock.patch.object(ConvNet, "__init__", note), seen.counting():
        train = getattr(Student(source).module, "train", None)
        if train is None:
            raise Wrong("there is no function `train` any more")
        train(comm, args, seen.dataset(), None)
    if not models:
        raise Wrong("no ConvNet was made")
    log = results.read(out).log if any(out.iterdir()) else []
    return {
        "batches": seen.batches,
        "decoded": seen.decoded.tolist(),
        "meetings": dict(seen.meetings),
        "fetched": seen.fetched,
        "losses": [epoch.get("main/loss") for epoch in log],
        "parameters": flat(models[-1].parameters()),
    }


class Counts:
    """Counts what a script does while it trains on the images of a case.

    case["files"]: the images are compressed files; case["numbers"]: all numbers of an image are its mark, so that it can be recognised.
    """

    def __init__(self, case):
        self.case = case
        self.files = [zlib.compress(image.numpy().tobytes()) for image in raw(case["images"], case["seed"])] if case.get("files") else []
        self.decoded = numpy.frombuffer(mmap.mmap(-1, 4 * (len(self.files) + 1)), numpy.int32)[:-1]  # shared with forked processes
        self.meetings, self.fetched, self.batches = collections.Counter(), 0, []
        self.marks = marks_of(case["images"], case["seed"], MARKS) if case.get("numbers") else []
        self.number = {int(mark): number for number, mark in enumerate(self.marks)}

    def dataset(self):
        labels = labels_of(self.case["images"])
        if self.files:
            images = numpy.array(self.files, dtype=object)
        elif self.number:
            images = (torch.from_numpy(self.marks).float() / MARKS).reshape(-1, 1, 1, 1).expand(-1, 1, 8, 8).clone()
        else:
            images = pictures(self.case["images"], self.case["seed"])
        return ImageDataset(images, labels, "pictures", None, tuple("0123456789"))

    def batch(self, model, inputs):
        """Note the numbers of a batch's images, before a forward pass; -1 for an image that is not in the data set."""
        self.batches.append([self.number.get(round(float(image.mean()) * MARKS), -1) for image in inputs[0].detach().numpy()])

    @contextlib.contextmanager
    def counting(self):
        number, decompress = {file: index for index, file in enumerate(self.files)}, zlib.decompress

        def decode(file, *options, **others):
            if (index := number.get(bytes(file))) is not None:
                self.decoded[index] += 1
            return decompress(file, *options, **others)

        def met(name, function):
            def call(*arguments, **options):
                self.meetings[name] += 1
                return function(*arguments, **options)

            return call

        def fetched(function):
            def call(tensor, *arguments):
                self.fetched += 1
                return function(tensor, *arguments)

            return call

        with contextlib.ExitStack() as patches:
            patches.enter_context(mock.patch.object(zlib, "decompress", decode))
            for name in COLLECTIVES:
                patches.enter_context(mock.patch.object(dist, name, met(name, getattr(dist, name))))
            for name in ("item", "__float__"):
                patches.enter_context(mock.patch.object(torch.Tensor, name, fetched(getattr(torch.Tensor, name))))
            yield


def raw(images, seed):
    """Images as files have them: uint8, (images, 3, SIZE, SIZE)."""
    return torch.randint(256, (images, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def pictures(images, seed):
    """Random images, (images, 1, 8, 8)."""
    return torch.rand(images, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def labels_of(images):
    return torch.arange(images) * 7 % 10
