"""Probes for the scripts that are profiled. They count what a training does, so that the result does not depend on a clock."""

import collections
import contextlib
import functools
import mmap
import zlib
from unittest import mock

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from grader.box.rank import Wrong
from grader.probes.marks import marks as marks_of
from grader.probes.pytorch import arguments, enlarge, examples, flat, join, network, precision
from grader.probes.script import Enough, Script
from grader.probes.student import Student
from handson.pytorch import devices, steps
from handson.pytorch.model import ConvNet
from handson.training import data, results
from handson.training.data import ImageDataset

SIZE = 64  # pixels of an image in a file
DEVICE = torch.device("cpu", 0)  # what `devices.use` gives; tensors that were never moved are on torch.device("cpu")
FETCHES = {
    "item", "tolist", "numpy", "cpu", "equal", "nonzero", "storage", "untyped_storage", "__array__", "__bool__", "__complex__", "__contains__",
    "__dlpack__", "__float__", "__format__", "__index__", "__int__", "__reduce_ex__", "__repr__",
}  # fmt: skip
OPERATIONS = {"allreduce": "all_reduce", "allgather": "all_gather", "allreduce_coalesced": "all_reduce_coalesced", "allgather_base": "all_gather"}
MARKS = 4096  # marks are below this; images hold them divided by it, so that a network can train on them
LRU_CACHE, USUAL_CACHE = functools.lru_cache, 128  # what it keeps unless it is told
TRAINING_SET = 1500  # images that the script trains on
LR = 0.002  # low, so that rounding errors stay small


def steps_of(case):
    """The number of steps that a rank makes: DistributedSampler gives each as many images."""
    images = -(-case["images"] // case["ranks"])
    return -(-images // case["batchsize"]) * case["epochs"]


@precision()
def marks(rank, ranks, source, case):
    """For each training step: the ranges that it entered, those that it left open, and those that were open during each part of its work.
    Also the parameters after each step."""
    comm, model = join(rank, ranks), network(case["seed"])
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    ranges, noted, trace = Ranges(), [], []
    ranges.watch(model, optimizer)

    def see(names):
        noted.append(ranges.taken())
        trace.append(flat(model.parameters()))
        if len(noted) == steps_of(case):
            raise Enough

    replaced = (steps, "network", lambda *arguments: (torch.device("cpu"), model, optimizer)), (data, "enlarge", enlarge)
    script = Script(source, {}, replaced=(*Script.replaced, *replaced))
    with ranges.instead_of_torchs():
        script.run(see, comm, arguments(ranks, case), examples(case["images"], case["seed"]), None, begin=lambda names: ranges.taken())
    return {"steps": noted, "parameters": numpy.stack(trace)}


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
    """What a script's whole `train` does: the images of each step; how often each file is decompressed ("decoded"), and how often numbers of
    an image are made of its bytes ("made"); how often each collective is called in each step ("meetings"), and how often numbers are fetched
    from the device; the losses that it reports, and the parameters at the end."""
    seen, models, start, forward = Counts(case), [], ConvNet.__init__, ConvNet.forward

    def note(model, *arguments, **options):
        start(model, *arguments, **options)
        seen.device.holds([*model.parameters(), *model.buffers()])
        models.append(model)

    def step(model, images):  # of copies of a network, too
        seen.step(images)
        return forward(model, images)

    comm, args = join(rank, ranks), arguments(ranks, case)
    vars(args).update(lr=LR, size=64, dataset="pictures")
    with mock.patch.object(ConvNet, "__init__", note), mock.patch.object(ConvNet, "forward", step), seen.counting():
        train = getattr(Student(source).module, "train", None)
        if train is None:
            raise Wrong("there is no function `train` any more")
        train(comm, args, seen.dataset(), None)
    if not models:
        raise Wrong("no ConvNet was made")
    log = results.read(args.out).log if any(args.out.iterdir()) else []
    return {
        "batches": seen.batches,
        "decoded": seen.decoded.tolist(),
        "made": seen.made.tolist(),
        "meetings": [dict(of_step) for of_step in seen.meetings],
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
        pixels = [image.numpy().tobytes() for image in raw(case["images"], case["seed"])] if case.get("files") else []
        self.files, self.image = [zlib.compress(one) for one in pixels], {one: number for number, one in enumerate(pixels)}
        self.decoded, self.made = (numpy.frombuffer(mmap.mmap(-1, 4 * (len(pixels) + 1)), numpy.int32)[:-1] for _ in "12")  # shared with forked processes
        self.device, self.meetings, self.fetched, self.batches = Device(self), [], [], []
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
        """A forward pass begins a step. Note the numbers of its images; -1 for an image that is not in the data set."""
        with torch._C.DisableTorchFunction():
            images = images.detach().numpy()
        self.batches.append([self.number.get(round(float(image.mean()) * MARKS), -1) for image in images])
        self.meetings.append(collections.Counter())
        self.fetched.append(0)

    def _small_cache(self, maxsize=USUAL_CACHE, typed=False):
        """lru_cache, whose usual size is as small for the images of a case as it is for those of the training set."""
        if callable(maxsize):
            return self._small_cache()(maxsize)
        return LRU_CACHE(max(1, USUAL_CACHE * self.case["images"] // TRAINING_SET) if maxsize == USUAL_CACHE else maxsize, typed)

    @contextlib.contextmanager
    def counting(self):
        decompress, decompressobj = zlib.decompress, zlib.decompressobj

        def noted(pixels):  # by what is decoded, since a file may be decoded in pieces
            if (index := self.image.get(pixels)) is not None:
                self.decoded[index] += 1
            return pixels

        class Decompress:
            def __init__(self, *options, **others):
                self.inside, self.pixels = decompressobj(*options, **others), b""

            def __getattr__(self, name):
                return getattr(self.inside, name)

            def decompress(self, *arguments):
                return self._more(self.inside.decompress(*arguments))

            def flush(self, *arguments):
                return self._more(self.inside.flush(*arguments))

            def _more(self, pixels):
                if pixels:
                    self.pixels += pixels
                    noted(self.pixels)
                return pixels

        with contextlib.ExitStack() as patches:
            patches.enter_context(mock.patch.object(zlib, "decompress", lambda *arguments, **options: noted(decompress(*arguments, **options))))
            patches.enter_context(mock.patch.object(zlib, "decompressobj", Decompress))
            patches.enter_context(mock.patch.object(functools, "lru_cache", self._small_cache))
            patches.enter_context(mock.patch.object(devices, "use", lambda gpu: DEVICE))
            for name in ("wait", "get"):
                patches.enter_context(mock.patch.object(dist.Store, name, self._waiting(getattr(dist.Store, name))))
            patches.enter_context(Dispatched(self))
            patches.enter_context(self.device)
            yield


    def _waiting(self, original):
        """A method of the ranks' store that waits until another rank has written."""

        def call(store, *arguments, **options):
            if self.meetings:
                self.meetings[-1]["the ranks' store"] += 1
            return original(store, *arguments, **options)

        return call

    def bytes_to_numbers(self, pixels):
        """Note of which images `pixels`, a tensor of bytes, has the pixels."""
        length = len(next(iter(self.image), b"0"))
        if self.image and pixels.numel() % length == 0:
            for one in pixels.reshape(-1, length):
                if (number := self.image.get(one.numpy().tobytes())) is not None:
                    self.made[number] += 1


class Dispatched(TorchDispatchMode):
    """Counts where everything passes, under whatever name it was called, torch's dispatcher: collectives, operations for whose result the host
    waits, and bytes of images that become numbers."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function.namespace in ("c10d", "_c10d_functional") and self.counts.meetings:
            name = function._schema.name.split("::")[1].strip("_")
            if "wait" not in name and "wrap" not in name:
                self.counts.meetings[-1][OPERATIONS.get(name, name)] += 1
        if self.counts.device.calculating and self.counts.fetched and host_waits(function, arguments):
            self.counts.fetched[-1] += 1
        found = function(*arguments, **options or {})
        if isinstance(found, torch.Tensor) and found.is_floating_point():
            for one in arguments:
                if isinstance(one, torch.Tensor) and one.dtype == torch.uint8:
                    self.counts.bytes_to_numbers(one)
        return found


def host_waits(function, arguments):
    """Whether the host must know numbers that are on the device: for the result itself, or for its shape."""
    if function in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default):
        return any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in arguments[1])
    return bool({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(function.tags))


class Device(TorchFunctionMode):
    """Lets tensors seem to be on a device of their own, where there is none, and counts what a script does with them that makes the host
    wait: all ways from a tensor to a number."""

    def __init__(self, counts):
        super().__init__()
        self.counts, self.calculating = counts, False

    def holds(self, tensors):
        for tensor in tensors:
            tensor.on_device = True

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        given = [*arguments, *options.values()]
        here = any(getattr(one, "on_device", False) for tensors in given for one in (tensors if isinstance(tensors, (list, tuple)) else [tensors]))
        if here and function == torch.Tensor.device.__get__:
            return DEVICE
        name, to_device = getattr(function, "__name__", ""), DEVICE in [one for one in given if isinstance(one, torch.device)]
        to_host = name in ("to", "as_tensor", "asarray") and any(str(one) == "cpu" for one in given if isinstance(one, (str, torch.device)))
        to_host |= name == "copy_" and not getattr(given[0], "on_device", False)
        if here and (name in FETCHES or to_host) and self.counts.fetched:
            self.counts.fetched[-1] += 1
        outer, self.calculating = self.calculating, here
        try:
            found = function(*arguments, **options)
        finally:
            self.calculating = outer
        if here or to_device:
            self.holds(one for one in (found if isinstance(found, (list, tuple)) else [found]) if isinstance(one, torch.Tensor))
        return found


def raw(images, seed):
    """Images as files have them: uint8, (images, 3, SIZE, SIZE)."""
    return torch.randint(256, (images, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def pictures(images, seed):
    """Random images, (images, 1, 8, 8)."""
    return torch.rand(images, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def labels_of(images):
    return torch.arange(images) * 7 % 10
