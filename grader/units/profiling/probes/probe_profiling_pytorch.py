"""Probes of the scripts that are profiled. They count the operations of a training run, so that the result does not
depend on a clock."""

import collections
import contextlib
import functools
import mmap
import traceback
import zlib
from unittest import mock

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from grader.probes.gap_code import GapCode
from grader.probes.marks import marks as marks_of
from grader.probes.pytorch_scripts import Network, arguments, enlarge, examples, flat, join, precision
from grader.probes.script import Script, StopScript
from grader.sandbox.rank import StudentMistake
from handson.pytorch import devices
from handson.pytorch import model as convnet
from handson.pytorch.model import ConvNet, conv_block
from handson.training import data, results
from handson.training.data import ImageDataset

SIZE = 16  # pixels of an image in a file; few, since there are many images
DEVICE = torch.device("cpu", 1)  # `devices.use` returns this device; the host is "cpu"
READS = "tolist", "numpy", "__array__", "cpu"  # the host reads tensors with these; its other ways pass the dispatcher
MARKS = 4096  # marks are below this; images hold them divided by it, so that a network can train on them
FIRST = 8  # so many of its numbers tell an image from all others
LR = 0.05
ENLARGED = 16  # args.size


def steps_of(case):
    """Return the number of steps of a rank. DistributedSampler gives all ranks equally many images."""
    images = -(-case["images"] // case["ranks"])
    return -(-images // case["batchsize"]) * case["epochs"]


@precision()
def marks(rank, ranks, source, case):
    """Return for each training step: the ranges that it entered, the ranges that it left open, and the ranges that
    were open during each part of its work. Also return the parameters after each step."""
    join(rank, ranks)
    ranges, noted, trace = Ranges(), [], []

    def begin(names):
        if not noted:
            ranges.watch(names.model, names.optimizer)
        ranges.taken()

    def see(names):
        noted.append(ranges.taken())
        trace.append(flat(names.model.parameters()))
        if len(noted) == steps_of(case):
            raise StopScript

    replaced = (
        (devices, "use", lambda gpu: torch.device("cpu")),
        (convnet, "ConvNet", Network),
        (data, "enlarge", enlarge),
    )
    script = Script(source, {}, replaced=(*Script.replaced, *replaced))
    with ranges.instead_of_torchs():
        script.run(see, rank, arguments(ranks, case), examples(case["images"], case["seed"]), begin=begin)
    return {"steps": noted, "parameters": numpy.stack(trace)}


class Ranges:
    """Replace torch's ranges (record_function and NVTX), and note which ranges are open during each part of a step's
    work."""

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
        """Return the notes since the last call."""
        # torch itself enters a range of this name
        entered = [name for name in self.entered if not name.startswith("Optimizer.")]
        found = {"entered": entered, "open": list(self.open), "work": [list(one) for one in self.work]}
        self.entered, self.work = [], []
        self.open.clear()
        return found

    def watch(self, model, optimizer):
        """Note the open ranges at the begin and the end of the work of `model` and `optimizer`."""
        for hook in (model.register_forward_pre_hook, model.register_forward_hook):
            hook(lambda *seen: self.note("the network's forward pass"))
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda parameter: self.note("loss.backward()"))
        for hook in (optimizer.register_step_pre_hook, optimizer.register_step_post_hook):
            hook(lambda *seen: self.note("optimizer.step()"))

    @contextlib.contextmanager
    def instead_of_torchs(self):
        @contextlib.contextmanager
        def entered(name, args=None):
            self.push(name)
            try:
                yield
            finally:
                self.pop()

        def noted(function, what):
            def call(*arguments, **options):
                self.note(what)
                return function(*arguments, **options)

            return call

        with contextlib.ExitStack() as patches:
            for place, name, stand_in in (
                (torch.profiler, "record_function", entered),
                (torch.autograd.profiler, "record_function", entered),
                (torch.cuda.nvtx, "range", entered),
                (torch.cuda.nvtx, "range_push", self.push),
                (torch.cuda.nvtx, "range_pop", self.pop),
                (dist, "all_reduce", noted(dist.all_reduce, "the all-reduce")),
                (F, "cross_entropy", noted(F.cross_entropy, "the loss")),
            ):
                patches.enter_context(mock.patch.object(place, name, stand_in))
            yield


def training(rank, ranks, source, case):
    """Run a script's whole `train`, and return

    - the images of each step, and the images that had the label of another one
    - how often each file is decompressed ("decoded"), and how many images are pooled ("made")
    - how often each collective is called in each step ("meetings"), and how often the host reads numbers of tensors
      ("fetched")
    - the reported losses, and the parameters at the end
    """
    seen, models, forward = Counts(case), [], ConvNet.forward

    def note(model, classes=10):
        nn.Sequential.__init__(model, *layers(classes))
        models.append(model)

    def step(model, images):  # it is also called for copies of a network
        seen.step(images)
        return forward(model, images)

    join(rank, ranks)
    args = arguments(ranks, case)
    vars(args).update(lr=LR, size=ENLARGED, dataset="pictures")
    with mock.patch.object(ConvNet, "__init__", note), mock.patch.object(ConvNet, "forward", step), seen.counting():
        train = getattr(GapCode(source).module, "train", None)
        if train is None:
            raise StudentMistake("the function `train` is missing: keep it")
        with _enough_shards(ranks):
            train(rank, args, seen.dataset())
    if not models:
        raise StudentMistake("the script creates no ConvNet")
    log = results.read(args.out).log if any(args.out.iterdir()) else []
    return {
        "batches": seen.batches,
        "mislabelled": seen.mislabelled(),
        "decoded": seen.decoded[: len(seen.files)].tolist(),
        "made": int(seen.made[0]),
        "meetings": [dict(of_step) for of_step in seen.meetings],
        "fetched": seen.fetched,
        "losses": [epoch.get("main/loss") for epoch in log],
        "parameters": flat(models[-1].parameters()),
    }


@contextlib.contextmanager
def _enough_shards(ranks):
    """Raise StudentMistake if the list `shards` does not have a part for each rank."""
    try:
        yield
    except IndexError as error:
        variables = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
        parts = next((len(of_frame["shards"]) for of_frame in variables if "shards" in of_frame), ranks)
        if parts < ranks:
            raise StudentMistake(
                f"`shards` has {parts} parts for {ranks} ranks: make one part for each rank"
            ) from error
        raise


def layers(classes):
    """Return a few layers that replace those of ConvNet. The probe inspects each operation of a step, and this takes
    longer than the operation."""
    return conv_block(3, 4, kernel=5, stride=4), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, classes)


def small_network():
    """Return the network that replaces ConvNet in a script."""
    return nn.Sequential(*layers(10))


class Counts(TorchDispatchMode):
    """Count the operations of a script while it trains on the images of a case. All operations that pass torch's
    dispatcher are counted, under any name: collectives, and operations for whose result the host must know numbers.
    case["files"]: whether the images are compressed files; case["numbers"]: whether all numbers of an image are its
    mark, by which it is recognised."""

    def __init__(self, case):
        super().__init__()
        self.case = case
        pixels = [image.numpy().tobytes() for image in raw(case["images"], case["seed"])] if case.get("files") else []
        self.files, self.image = list(map(zlib.compress, pixels)), {one: place for place, one in enumerate(pixels)}
        self.finished = decoded(case["images"], case["seed"]).flatten(1)[:, :FIRST].numpy() if self.files else None
        # shared with forked processes
        self.decoded, self.made = (numpy.frombuffer(mmap.mmap(-1, 4 * (len(pixels) + 1)), numpy.int32) for _ in "12")
        self.meetings, self.fetched, self.batches, self.labels = [], [], [], []
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

    def step(self, images):
        """Note the numbers of the images in a step, which a forward pass begins. For files, the nearest image
        counts; otherwise, an image that is not in the data set has the number -1."""
        with torch._C.DisableTorchFunction():
            images = images.detach().numpy()
        if self.files:
            differences = numpy.abs(images.reshape(len(images), 1, -1)[..., :FIRST] - self.finished)
            self.batches.append(differences.max(axis=-1).argmin(axis=-1).tolist())
        else:
            self.batches.append([self.number.get(round(float(image.mean()) * MARKS), -1) for image in images])
        self.labels.append([])
        self.meetings.append(collections.Counter())
        self.fetched.append(0)

    @contextlib.contextmanager
    def counting(self):
        """Context manager that counts; in it, `devices.use` returns DEVICE."""
        decompress, avg_pool2d, cross_entropy = zlib.decompress, F.avg_pool2d, F.cross_entropy

        def decoding(*arguments, **options):
            pixels = decompress(*arguments, **options)
            if (index := self.image.get(pixels)) is not None:
                self.decoded[index] += 1
            return pixels

        def making(images, *arguments, **options):
            self.made[0] += len(images) if images.ndim == 4 else 1
            return avg_pool2d(images, *arguments, **options)

        def noting_labels(scores, labels, *arguments, **options):
            if self.labels:
                with torch._C.DisableTorchFunction():
                    self.labels[-1] = labels.detach().numpy().tolist()
            return cross_entropy(scores, labels, *arguments, **options)

        with (
            mock.patch.object(zlib, "decompress", decoding),
            mock.patch.multiple(F, avg_pool2d=making, cross_entropy=noting_labels),
            mock.patch.object(devices, "use", lambda gpu: DEVICE),
            self,
            Reads(self),
        ):
            yield

    def mislabelled(self):
        """Return the numbers of the images that had the label of another image."""
        right = labels_of(self.case["images"]).tolist()
        pairs = (pair for of_step in zip(self.batches, self.labels) for pair in zip(*of_step))
        return sorted({number for number, label in pairs if number >= 0 and label != right[number]})

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if self.fetched and host_waits(function, arguments):
            self.fetched[-1] += 1
        if "c10d" in function.namespace and self.meetings:
            name = function.__name__.partition(".")[0].strip("_")
            if "wait" not in name and "wrap" not in name:
                self.meetings[-1][name.replace("all_reduce", "allreduce")] += 1
        return function(*arguments, **(options or {}))


def host_waits(function, arguments):
    """Return whether the host must know numbers of a tensor, either for the result itself or for its shape."""
    if function in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default):
        return any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in arguments[1])
    return depends_on_data(function)


@functools.cache  # reading the tags takes longer than many an operation
def depends_on_data(function):
    return bool({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(function.tags))


class Reads(TorchFunctionMode):
    """Count the reads of a tensor on the host that do not pass the dispatcher, because there is no device. All
    tensors seem to be on DEVICE."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_function__(self, function, types, arguments=(), options=None):
        options, name = options or {}, getattr(function, "__name__", "")
        if function == torch.Tensor.device.__get__:
            return DEVICE
        given = (one for one in (*arguments[1:], *options.values()) if isinstance(one, (str, torch.device)))
        to_host = name == "to" and any(str(one) in ("cpu", "cpu:0") for one in given)
        if self.counts.fetched and (name in READS or to_host):
            self.counts.fetched[-1] += 1
        return function(*arguments, **options)


def raw(images, seed):
    """Return images as files store them: uint8, (images, 3, SIZE, SIZE). Some have black rows, so that the lengths
    of files differ."""
    found = torch.randint(
        256, (images, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    for number, image in enumerate(found):
        image[:, SIZE - number * 5 % (SIZE // 2) :] = 0
    return found


def decoded(images, seed):
    """Return the images of the files, (images, 3, SIZE / 2, SIZE / 2), as `decode` of slow_loading.py passes them to
    the network."""
    pooled = F.avg_pool2d(raw(images, seed).float(), 2)
    return torch.stack([(image - image.mean()) / image.std() for image in pooled])


def pictures(images, seed):
    """Random images, (images, 1, 8, 8)."""
    return torch.rand(images, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def labels_of(images):
    return torch.arange(images) * 7 % 10
