"""Probes for the scripts that are profiled. They count what a training does, so that the result does not depend on a
clock."""

import collections
import contextlib
import copy
import functools
import itertools
import mmap
import operator
import threading
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
from handson.pytorch.profiling_helpers import average_gradients
from handson.training import data, results
from handson.training.data import ImageDataset

SIZE = 16  # pixels of an image in a file; few, since there are many images
# what `devices.use` gives; tensors that were never moved are on torch.device("cpu"), which is also "cpu:0"
DEVICE = torch.device("cpu", 1)
FETCHES = {
    "item",
    "tolist",
    "numpy",
    "equal",
    "nonzero",
    "storage",
    "untyped_storage",
    "apply_",
    "map_",
    "map2_",
    "__array__",
    "__bool__",
    "__complex__",
    "__contains__",
    "__dlpack__",
    "__float__",
    "__format__",
    "__index__",
    "__int__",
    "__reduce_ex__",
    "__repr__",
}
# their result may be on another device
CONVERSIONS = {"cpu", "to", "type", "type_as", "tensor", "as_tensor", "asarray", "new_tensor"}
# their first argument may be on another device
FILLS = torch.ops.aten.copy_.default, torch.ops.aten.fill_.Tensor, torch.ops.aten.index_put_.default
STORE = (  # methods of the ranks' store that tell what others have written
    "add",
    "barrier",
    "check",
    "compare_set",
    "get",
    "list_keys",
    "multi_get",
    "num_keys",
    "queue_len",
    "queue_pop",
    "wait",
)
OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather_base": "all_gather",
}
MARKS = 4096  # marks are below this; images hold them divided by it, so that a network can train on them
# so many of its numbers tell an image from all others; if none of them differs by as much as this, it is the same image
FIRST, ALIKE = 8, 0.01
LR = 0.05
ENLARGED = 16  # args.size


def steps_of(case):
    """The number of steps that a rank makes: DistributedSampler gives each as many images."""
    images = -(-case["images"] // case["ranks"])
    return -(-images // case["batchsize"]) * case["epochs"]


@precision()
def marks(rank, ranks, source, case):
    """For each training step: the ranges that it entered, those that it left open, and those that were open during each
    part of its work. Also the parameters after each step."""
    comm, ranges, noted, trace = join(rank, ranks), Ranges(), [], []

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
        script.run(see, comm, arguments(ranks, case), examples(case["images"], case["seed"]), None, begin=begin)
    return {"steps": noted, "parameters": numpy.stack(trace)}


class Ranges:
    """Replaces torch's ranges (record_function and NVTX), and notes which ranges are open during each part of a step's
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
        """What was noted since the last call."""
        # torch itself enters a range of this name
        entered = [name for name in self.entered if not name.startswith("Optimizer.")]
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
    """What a script's whole `train` does: the images of each step, and those that had another's label; how often each
    file is decompressed ("decoded"), and how often an image is computed as the network gets it ("made"); how often each
    collective is called in each step ("meetings"), and how often numbers are fetched from the device; the losses that
    it reports, and the parameters at the end. If case["numbers"], also those that the same steps give ("right")."""
    seen, models, forward = Counts(case), [], ConvNet.forward

    def note(model, classes=10):
        nn.Sequential.__init__(model, *layers(classes))
        with torch._C.DisableTorchFunction():
            place([*model.parameters(), *model.buffers()], True)
        models.append(model)

    def step(model, images):  # of copies of a network, too
        seen.step(images)
        return forward(model, images)

    comm, args = join(rank, ranks), arguments(ranks, case)
    vars(args).update(lr=LR, size=ENLARGED, dataset="pictures")
    given = copy.copy(args)  # which the student's code can't change
    with mock.patch.object(ConvNet, "__init__", note), mock.patch.object(ConvNet, "forward", step), seen.counting():
        train = getattr(GapCode(source).module, "train", None)
        if train is None:
            raise StudentMistake("there is no function `train` any more")
        with _enough_shards(ranks):
            train(comm, args, seen.dataset(), None)
    if not models:
        raise StudentMistake("no ConvNet was made")
    log = results.read(args.out).log if any(args.out.iterdir()) else []
    right = {"right": trained(given, seen)} if case.get("numbers") else {}
    return right | {
        "batches": seen.batches,
        "mislabelled": seen.mislabelled(),
        "decoded": seen.decoded.tolist(),
        "made": seen.made.tolist(),
        "meetings": [dict(of_step) for of_step in seen.meetings],
        "fetched": seen.fetched,
        "losses": [epoch.get("main/loss") for epoch in log],
        "parameters": flat(models[-1].parameters()),
    }


@contextlib.contextmanager
def _enough_shards(ranks):
    """Raises StudentMistake if a rank finds no part of its own in the list `shards`."""
    try:
        yield
    except IndexError as error:
        shards = next(
            (
                frame.f_locals["shards"]
                for frame, _ in traceback.walk_tb(error.__traceback__)
                if "shards" in frame.f_locals
            ),
            None,
        )
        if isinstance(shards, (list, tuple)) and len(shards) < ranks:
            raise StudentMistake(
                f"`shards` has {len(shards)} parts, and there are {ranks} ranks: each needs a part of its own"
            ) from error
        raise


def layers(classes):
    """Fewer than those of ConvNet, in their place: what each operation of a step does is looked at, which takes longer
    than the operation."""
    return conv_block(3, 4, kernel=5, stride=4), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, classes)


def small_network():
    """The network that a script gets for ConvNet."""
    return nn.Sequential(*layers(10))


def trained(args, seen):
    """The parameters that steps of the script, as it was given, give with the images that the network got in each
    step."""
    torch.manual_seed(args.seed)
    model, dataset = small_network(), seen.dataset()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for numbers in seen.batches:
        optimizer.zero_grad()
        images = data.enlarge(dataset.images[numbers], args.size)
        F.cross_entropy(model(images), dataset.labels[numbers]).backward()
        average_gradients(model, len(images))
        optimizer.step()
    return flat(model.parameters())


class Counts:
    """Counts what a script does while it trains on the images of a case.

    case["files"]: the images are compressed files; case["numbers"]: all numbers of an image are its mark, so that it
    can be recognised.
    """

    def __init__(self, case):
        self.case = case
        pixels = [image.numpy().tobytes() for image in raw(case["images"], case["seed"])] if case.get("files") else []
        self.files, self.image = (
            [zlib.compress(one) for one in pixels],
            {one: number for number, one in enumerate(pixels)},
        )
        finished = decoded(case["images"], case["seed"]) if self.files else torch.empty(0, 3, 1, 1)
        self.length = finished[:1].numel()
        self.finished, colours_last = (
            images.flatten(1)[:, :FIRST] for images in (finished, finished.permute(0, 2, 3, 1))
        )
        self.known = torch.cat([self.finished, colours_last])
        # shared with forked processes
        self.decoded, self.made = (
            numpy.frombuffer(mmap.mmap(-1, 4 * (len(pixels) + 1)), numpy.int32)[:-1] for _ in "12"
        )
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
        """A forward pass begins a step. Note the numbers of its images; -1 for an image that is not in the data set."""
        with torch._C.DisableTorchFunction():
            images = images.detach().numpy()
        if self.files:
            alike = (
                numpy.abs(images.reshape(len(images), 1, -1)[..., :FIRST] - self.finished.numpy()).max(axis=-1) < ALIKE
            )
            self.batches.append([int(of_image.argmax()) if of_image.any() else -1 for of_image in alike])
        else:
            self.batches.append([self.number.get(round(float(image.mean()) * MARKS), -1) for image in images])
        self.labels.append([])
        self.meetings.append(collections.Counter())
        self.fetched.append(0)

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

            def copy(self):
                other = Decompress()
                other.inside, other.pixels = self.inside.copy(), self.pixels
                return other

            def _more(self, pixels):
                if pixels:
                    self.pixels += pixels
                    noted(self.pixels)
                return pixels

        with contextlib.ExitStack() as patches:
            patches.enter_context(
                mock.patch.object(
                    zlib, "decompress", lambda *arguments, **options: noted(decompress(*arguments, **options))
                )
            )
            patches.enter_context(mock.patch.object(zlib, "decompressobj", Decompress))
            patches.enter_context(mock.patch.object(devices, "use", lambda gpu: DEVICE))
            patches.enter_context(mock.patch.object(F, "cross_entropy", self._noting_labels(F.cross_entropy)))
            for name in STORE:
                patches.enter_context(mock.patch.object(dist.Store, name, self._waiting(getattr(dist.Store, name))))
            patches.enter_context(
                mock.patch.object(threading.Thread, "start", self._counted_too(threading.Thread.start))
            )
            patches.enter_context(Dispatched(self))
            patches.enter_context(Device(self))
            yield

    def _noting_labels(self, original):
        """A function of the network's scores and of labels: it notes these as those of the last step's images."""

        def call(scores, labels, *arguments, **options):
            if self.labels:
                with torch._C.DisableTorchFunction():
                    self.labels[-1] = labels.detach().numpy().tolist()
            return original(scores, labels, *arguments, **options)

        return call

    def mislabelled(self):
        """The numbers of the images that came with the label of another image."""
        right = labels_of(self.case["images"]).tolist()
        pairs = (pair for of_step in zip(self.batches, self.labels) for pair in zip(*of_step))
        return sorted({number for number, label in pairs if number >= 0 and label != right[number]})

    def _waiting(self, original):
        """A method of the ranks' store by which a rank can wait until another one has written."""

        def call(store, *arguments, **options):
            if self.meetings:
                self.meetings[-1]["the ranks' store"] += 1
            return original(store, *arguments, **options)

        return call

    def _counted_too(self, start):
        """Thread.start of threads in which the same is counted: torch's modes hold for one thread."""

        def call(thread):
            run = thread.run

            def counted():
                with Dispatched(self), Device(self):
                    run()

            thread.run = counted
            return start(thread)

        return call

    def shown(self, values):
        """The numbers of the images that tensors in `values` hold as the network gets them, or with the colours
        last."""
        found = set()
        for tensor in tensors_in(values):
            if tensor.is_floating_point() and self.length in itertools.accumulate(reversed(tensor.shape), operator.mul):
                differences = tensor.reshape(-1, 1, self.length)[..., :FIRST].float() - self.known
                found.update(
                    number % len(self.finished)
                    for number in (differences.abs().amax(-1) < ALIKE).nonzero()[:, 1].tolist()
                )
        return found


class Dispatched(TorchDispatchMode):
    """Counts where everything passes, under whatever name it was called, torch's dispatcher: collectives, operations
    for whose result the host waits, and those that compute images as the network gets them. What is computed from
    tensors on the device is on the device."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = options or {}
        if function.namespace in ("c10d", "_c10d_functional") and self.counts.meetings:
            name = function._schema.name.split("::")[1].strip("_")
            if "wait" not in name and "wrap" not in name:
                self.counts.meetings[-1][OPERATIONS.get(name, name)] += 1
        with torch._C.DisableTorchFunction():
            here = any(map(on_device, tensors_in([arguments, *options.values()])))
            fills_host = here and host_is_filled(function, arguments, options)
            if here and self.counts.fetched and (fills_host or host_waits(function, arguments)):
                self.counts.fetched[-1] += 1
            found = self._making(function, arguments, options) if self.counts.files else function(*arguments, **options)
            if here and not fills_host or options.get("device") == DEVICE:
                place([found], True)
        return found

    def _making(self, function, arguments, options):
        """What an operation gives. Note the images that it computes from tensors, as the network gets them."""
        before = self.counts.shown(arguments) if function._schema.is_mutable else None
        from_tensors = any(one.numel() for one in tensors_in(arguments))
        found = function(*arguments, **options)
        # those give memory that has yet to be filled
        if from_tensors and not function.is_view and "empty" not in function._schema.name:
            if shown := self.counts.shown([found]):
                self.counts.made[list(shown - (self.counts.shown(arguments) if before is None else before))] += 1
        return found


def host_waits(function, arguments):
    """Whether the host must know numbers that are on the device: for the result itself, for its shape, or to see
    whether an inverse exists."""
    if function in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default):
        return any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in arguments[1])
    return always_waits(function)


@functools.cache  # reading the tags takes longer than many an operation
def always_waits(function):
    return function == torch.ops.aten._linalg_check_errors.default or bool(
        {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(function.tags)
    )


def host_is_filled(function, arguments, options):
    """Whether an operation writes its result into a tensor of the host: that which it fills, or the one of out=...,
    which alone is given by name."""
    written = [*arguments[: function in FILLS], *options.values()]
    return not all(map(on_device, tensors_in(written)))


class Device(TorchFunctionMode):
    """Lets tensors seem to be on a device of their own, where there is none, and counts the ways from there to the host
    that don't pass the dispatcher, since both are in the same memory."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        given = [*arguments, *options.values()]
        tensors = list(tensors_in(given))
        here = any(map(on_device, tensors))
        if here and function == torch.Tensor.device.__get__:
            return DEVICE
        name = getattr(function, "__name__", "")
        to_device = any(one in (DEVICE, str(DEVICE)) for one in given if isinstance(one, (torch.device, str)))
        to_host = here and (name == "cpu" or name in CONVERSIONS and any(names_host(one, name) for one in given[1:]))
        of_list = name in CONVERSIONS and any(
            map(on_device, tensors_in(one for one in given if isinstance(one, (list, tuple))))
        )
        if (name in FETCHES and here or to_host or of_list) and self.counts.fetched:
            self.counts.fetched[-1] += 1
        found = function(*arguments, **options)
        if here or to_device:
            # it moves, which takes memory of its own
            if name in CONVERSIONS and tensors and on_device(tensors[0]) == to_host:
                found = found.clone()
            place([one for one in tensors_in([found]) if not any(one is other for other in tensors)], not to_host)
        return found


def names_host(one, name):
    """Whether an argument of the conversion `name` asks for a result on the host."""
    if isinstance(one, torch.Tensor):
        return name in ("to", "type_as") and not on_device(one)
    if isinstance(one, (torch.device, str)):
        return str(one) in ("cpu", "cpu:0")
    return isinstance(one, type(torch.FloatTensor))


def tensors_in(values):
    """The tensors in nested lists."""
    for one in values:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from tensors_in(one)


def on_device(tensor):
    """Whether a tensor seems to be on the device. Its memory is marked, so that its views are there, too."""
    return tensor.layout == torch.strided and getattr(tensor.untyped_storage(), "on_device", False)


def place(values, on_device):
    """Let the tensors in nested lists seem to be on the device, or on the host."""
    for tensor in tensors_in(values):
        if tensor.layout == torch.strided:
            tensor.untyped_storage().on_device = on_device


def raw(images, seed):
    """Images as files have them: uint8, (images, 3, SIZE, SIZE). Some have black rows, so that files differ in their
    lengths."""
    found = torch.randint(
        256, (images, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    for number, image in enumerate(found):
        image[:, SIZE - number * 5 % (SIZE // 2) :] = 0
    return found


def decoded(images, seed):
    """The images in the files, (images, 3, SIZE / 2, SIZE / 2), as slow_loading.py's `decode` gives them to the
    network."""
    pooled = F.avg_pool2d(raw(images, seed).float(), 2)
    return torch.stack([(image - image.mean()) / image.std() for image in pooled])


def pictures(images, seed):
    """Random images, (images, 1, 8, 8)."""
    return torch.rand(images, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def labels_of(images):
    return torch.arange(images) * 7 % 10
