"""Probes for the PyTorch track: each runs one gap in its place in the script, with its own data, and observes the
effects."""

import contextlib
import inspect
import itertools
import os
import sys
import tempfile
from dataclasses import replace
from numbers import Integral
from operator import index
from pathlib import Path
from unittest import mock

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from grader.probes import noted_waits, whole
from grader.probes.marks import mark, marks, samples_of
from grader.probes.gap_code import RETURNED, GapCode
from grader.probes.script import Script, StopScript, causes, only_one, options_of, reported_numbers
from grader.sandbox.rank import StudentMistake
from handson.pytorch import devices, model
from handson.pytorch.communicator import Communicator
from handson.training import data
from handson.training.data import ImageDataset
from handson.training.epoch_table import EpochTable
from handson.words import a_kind

SIZE = 2  # args.size
_groups = itertools.count()  # process groups of this rank
NOT_COMPILED = (  # compiling takes longer than a check may, and changes no result
    (torch, "compile", lambda model=None, **options: model or (lambda model: model)),
    (nn.Module, "compile", lambda module, *arguments, **options: None),
)
# all ranks create the same model, so nothing has to be sent at the start; older versions of torch always do
EQUAL_ALREADY = {"init_sync": False} if "init_sync" in inspect.signature(DistributedDataParallel).parameters else {}
SILENT = EpochTable, "say", lambda table, line: None


def join(rank, ranks, ranks_per_node=None, in_turn=False):
    """Form a process group and return this rank's communicator. Every rank gets another random seed, as in real runs,
    and the variables that torchrun sets. in_turn: consecutive ranks are on different nodes."""
    if not dist.is_initialized():  # one group serves all cases that run in these ranks, until a gap fails
        torch.set_num_threads(1)
        noted_waits.install()
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group(
            "gloo", init_method=f"file://{os.getcwd()}/meeting{next(_groups)}", rank=rank, world_size=ranks
        )
    for group in [group for group in dist.distributed_c10d._world.pg_map if group is not dist.group.WORLD]:
        dist.destroy_process_group(group)  # an earlier case's group has threads, whose number is limited
    # torch.manual_seed also stores the caller for GPUs, which takes milliseconds
    torch.default_generator.manual_seed(1000 + rank)
    nodes = -(-ranks // (ranks_per_node or ranks))
    node, on_it = divmod(rank, ranks_per_node or ranks) if not in_turn else (rank % nodes, rank // nodes)
    os.environ |= {"HANDSON_NODE": f"node{node + 1}", "LOCAL_RANK": str(on_it), "RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks_per_node or ranks)}
    return Communicator(rank, ranks, on_it, nodes, "gloo", f"{ranks} virtual GPUs")


@contextlib.contextmanager
def precision(dtype=torch.float64):
    """Context manager that sets the default precision of new tensors, such as torch.zeros(3), to that of the network,
    because code may rely on equal types, as in a real run."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def dataset(images, seed=0):
    """Return a data set of (1, 2, 2) images. All numbers of image i are its mark, so that each sample can be
    recognised."""
    marked = torch.from_numpy(marks(images, seed)).float().reshape(-1, 1, 1, 1)
    return ImageDataset(
        marked.repeat(1, 1, 2, 2), torch.arange(images) % 10, "numbers", Path("numbers.npz"), tuple("0123456789")
    )


def examples(images, seed):
    """Return a data set of random (1, 2, 2) images in double precision."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(images, 1, 2, 2, dtype=torch.float64, generator=generator)
    return ImageDataset(
        numbers, torch.randint(10, (images,), generator=generator), "numbers", Path("numbers.npz"), tuple("0123456789")
    )


def part(whole, lengths, rank):
    """Return the part of a rank, if an ImageDataset is split in order. lengths: the lengths of all ranks' parts."""
    begin, end = sum(lengths[:rank]), sum(lengths[: rank + 1])
    return ImageDataset(whole.images[begin:end], whole.labels[begin:end], whole.name, whole.path, whole.classes)


class Network(nn.Sequential):
    """A small network that replaces ConvNet: (N, 1, 2, 2) to (N, 10). It records its use."""

    dtype = torch.float64

    def __init__(self, classes=10):
        with precision(torch.float32):  # the same random numbers everywhere
            super().__init__(*self.layers(classes))
        self.to(self.dtype)
        self.passes = []  # (number of images, whether all layers are in training mode) of each forward pass
        self[0].register_forward_pre_hook(self._note)

    def layers(self, classes):
        return nn.Flatten(), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, classes)

    def _note(self, layer, inputs):
        self.passes.append((len(inputs[0]), all(module.training for module in self.modules())))


class NormalizingNetwork(Network):
    """A Network with batch normalisation, whose running statistics come from other images."""

    def layers(self, classes):
        return (
            nn.Sequential(nn.Identity(), nn.BatchNorm2d(1)),
            nn.Flatten(),
            nn.Linear(4, 8),
            nn.Tanh(),
            nn.Linear(8, classes),
        )

    def __init__(self, classes=10):
        super().__init__(classes)
        super().forward(1 + 2 * torch.randn(50, 1, 2, 2, dtype=torch.float64).to(self.dtype))


def network(seed, kind=Network):
    """Return the network that a script creates with args.seed = `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return kind()


def batch(seed, step, lengths, rank):
    """Return images and labels of rank `rank` in step `step`. lengths: the number of images of each rank."""
    generator = torch.Generator().manual_seed(seed + 7919 * step)
    images = torch.randn(sum(lengths), 1, 2, 2, dtype=torch.float64, generator=generator)
    labels = torch.randint(10, (sum(lengths),), generator=generator)
    return images.split(list(lengths))[rank], labels.split(list(lengths))[rank]


def enlarge(images, size=SIZE):
    """Replace data.enlarge: multiply images by the size, which is 2, so that the results show its use."""
    return images * size


def seed_of(case):
    """Return args.seed."""
    return case["seed"] % 1000


def flat(tensors):
    """Return all numbers of some tensors, as one NumPy array."""
    return torch.cat([tensor.detach().flatten().double() for tensor in tensors]).numpy()


def arguments(ranks, case):
    """Return `args` in the state after options.parse and announce."""
    unit = case["unit"]
    args = options_of(f"00_{unit}/pytorch/train_cifar_{unit}.py", ranks)
    vars(args).update(
        {name: case[name] for name in ("batchsize", "lr", "gpu") if name in case},
        seed=seed_of(case),
        size=SIZE,
        dataset="numbers",
    )
    vars(args).update(
        workers=ranks, nodes=-(-ranks // case.get("ranks_per_node", ranks)), devices=f"{ranks} virtual GPUs"
    )
    vars(args).update(communicator="gloo" if "ranks_per_node" in case else "", network="")
    vars(args).update(epoch=case.get("epochs", 4), out=Path(tempfile.mkdtemp(dir=".")))
    return args


class GapInScript:
    """A gap of `train` in the script of the case's unit, on one rank. It is a script for several ranks if the case has
    "ranks". Steps and evaluations do nothing there.

    kind: the class that replaces ConvNet; dtype: the precision of network and images, single as in a real run, which
    code may name; before, stand_ins: as for Script, additions to the ones below; train_step: the replacement of the
    script's function.
    """

    def __init__(
        self,
        rank,
        ranks,
        source,
        case,
        train_set,
        test_set=None,
        kind=Network,
        dtype=torch.float32,
        before=None,
        train_step=lambda model, optimizer, images, labels: (torch.zeros(()), torch.zeros(len(labels), 10)),
        **stand_ins,
    ):
        train_set, test_set = (
            replace(one, images=one.images.to(dtype)) for one in (train_set, test_set or examples(2 * ranks, 0))
        )
        self.dtype, self.args = dtype, arguments(ranks, case)
        several = "ranks" in case
        if several:
            join(rank, ranks, case.get("ranks_per_node"), case.get("in_turn", False))
        self.arguments = [rank] * several + [self.args, train_set, test_set]
        replaced = [
            (model, "ConvNet", type(kind.__name__, (kind,), {"dtype": dtype})),
            (data, "enlarge", enlarge),
            SILENT,
            *NOT_COMPILED,
        ]
        instead = {"train_step": train_step, "evaluate": lambda *arguments: (0.0, 0.0)}
        self.script = Script(
            source, self._stand_ins() | stand_ins, before or {}, (*Script.replaced, *replaced), instead=instead
        )

    def run(self, see, **options):
        """Run like Script.run. options: the attributes of `args`."""
        vars(self.args).update(options)
        with precision(self.dtype):
            self.script.run(see, *self.arguments)

    def _stand_ins(self):
        return {
            "device": ("device", lambda: torch.device("cpu")),
            "loader": ("train_loader", lambda train_set, args: DataLoader(train_set, args.batchsize, shuffle=True)),
            "sampler": ("sampler", lambda train_set, args: DistributedSampler(train_set, seed=args.seed)),
            "optimizer": ("optimizer", lambda model, args: torch.optim.SGD(model.parameters(), args.lr, 0.9)),
            # the ranks have created equal models
            "replica": ("replica", lambda model: DistributedDataParallel(model, **EQUAL_ALREADY)),
            "shuffle": ("", lambda: None),
            "throughput": ("", _enough),
        }


def _enough():
    raise StopScript


def device(rank, ranks, source, case):
    """Return the GPU that this rank uses, if `device` is the one that it requests; otherwise words. case["gpu"]: the
    GPUs of one node."""
    used, found = [], []

    def use(gpu):
        if not isinstance(gpu, Integral):
            raise StudentMistake(f"`devices.use` is called with {gpu!r}, but it takes the id of a GPU")
        used.append(int(gpu))
        return torch.device("cpu", int(gpu))  # right code may ask a "cuda" device for its name, which requires a GPU

    def see(names):
        made = names.device
        only_one(used)
        given = (
            used
            and isinstance(made, torch.device)
            and made in (torch.device("cpu", used[-1]), torch.device("cuda", used[-1]))
        )
        found.append(used[-1] if given else str(made))
        raise StopScript

    with (
        mock.patch.object(devices, "use", use),
        mock.patch.object(torch.cuda, "current_device", lambda: used[-1] if used else 0),
    ):
        try:
            GapInScript(rank, ranks, source, case, dataset(ranks)).run(see)
        except IndexError:
            return {"gpu": "nowhere"}
    return {"gpu": found[0]}


def sampler(rank, ranks, source, case):
    """Return the images of one rank in the first epoch, in order; those in a second run with the same seed ("again")
    and in one with another seed ("other")."""
    images = case["images"]
    place, found = GapInScript(rank, ranks, source, case, dataset(images, case["seed"])), []

    def see(names):
        try:
            found.append([index(number) for number in names.sampler])
        except TypeError:
            raise StudentMistake(
                f"`sampler` is {a_kind(names.sampler)}, which does not return image numbers: a DataLoader"
                " takes these from its sampler, one by one"
            ) from None
        if any(not 0 <= number < images for number in found[-1]):
            raise StudentMistake(
                f"`sampler` returns image {max(found[-1])}, but the data set has {images} images, numbered from 0"
            )
        raise StopScript

    torch.manual_seed(case["seed"] + rank)  # changes an order that does not depend on args.seed
    place.run(see)
    torch.manual_seed(case["seed"] + rank + 1)
    place.run(see)
    place.run(see, seed=seed_of(case) + 1)
    return dict(zip(("samples", "again", "other"), found))


def replica(rank, ranks, source, case):
    """Return the initial parameters, and the gradients after a backward pass of the wrapped model for each of two
    batches."""
    everything, found = examples(sum(case["lengths"]), case["seed"]), {}
    place = GapInScript(rank, ranks, source, case, everything, kind=NormalizingNetwork, dtype=torch.float64)
    mine = part(everything, case["lengths"], rank)

    def see(names):
        found["start"], found["training"] = flat(names.model.parameters()), names.model.training
        gradients = []
        for images in (mine.images, mine.images.flip(0)):
            names.model.zero_grad()
            outputs = names.replica(images)
            F.cross_entropy(outputs, mine.labels).backward()
            of_batch = [parameter.grad for parameter in names.model.parameters()]
            if any(gradient is None for gradient in of_batch):
                found["gradients"] = "none"
                raise StopScript
            gradients.append(flat(of_batch))  # a copy, because the next pass may use the same memory
        found["gradients"] = numpy.stack(gradients)
        raise StopScript

    place.run(see)
    return found


def order(rank, ranks, source, case):
    """Return the images of this rank in the order in which they reach `train_step`, in each of four epochs ("orders"),
    and the sizes of the batches ("sizes")."""
    epochs, images = 4, case["images"]
    batches = [[] for _ in range(epochs)]  # per epoch: (mark, label) of each image

    def step(model, optimizer, images, labels):
        epoch = sys._getframe(1).f_locals["epoch"]
        batches[epoch].append([(mark(image) / 2, int(label)) for image, label in zip(images, labels)])
        return torch.zeros(()), torch.zeros(len(labels), 10)

    def numbers(pairs):
        found, labels = zip(*pairs) if (pairs := list(pairs)) else ((), ())
        found = samples_of(found, images, case["seed"])
        if others := sum(label != number % 10 for number, label in zip(found, labels)):
            raise StudentMistake(
                f"{others} of {len(found)} images in an epoch have the label of another image: images and labels must"
                " be in the same order"
            )
        return found

    GapInScript(rank, ranks, source, case, dataset(images, case["seed"]), train_step=step).run(
        lambda names: None, epoch=epochs
    )
    orders = [numbers(itertools.chain(*of_epoch)) for of_epoch in batches]
    return {"orders": orders, "sizes": [list(map(len, of_epoch)) for of_epoch in batches]}


def step(rank, ranks, source, case):
    """Return the parameters after each call of `train_step`, its forward passes, the loss that it returns, and the
    class of each image according to the outputs ("classes")."""
    found = {"parameters": [], "losses": [], "passes": [], "classes": []}
    if "ranks" in case:
        join(rank, ranks, case.get("ranks_per_node"))
    gap, model = GapCode(source), network(seed_of(case))
    replica = DistributedDataParallel(model, **EQUAL_ALREADY) if "ranks" in case else model
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    for number in range(case["steps"]):
        images, labels = batch(case["seed"], number, case["lengths"], rank)
        model.passes.clear()
        with precision(), causes():
            names = gap.run(model=replica, optimizer=optimizer, images=images, labels=labels)
        loss, outputs = names[RETURNED] if RETURNED in names else (names.loss, names.outputs)
        for name, value in (("loss", loss), ("outputs", outputs)):
            if not isinstance(value, torch.Tensor):
                raise StudentMistake(f"`{name}` is {a_kind(value)}, but the script's next line needs a tensor")
        if tuple(outputs.shape) != (len(labels), 10):
            raise StudentMistake(
                f"`outputs` has the shape {tuple(outputs.shape)}, but it must have one row for each of the"
                f" {len(labels)} images"
            )
        found["parameters"].append(flat(model.parameters()))
        found["passes"].append([list(one) for one in model.passes])
        found["losses"].append(float(loss.detach()))
        found["classes"].append(outputs.argmax(dim=1).tolist())
    return found | {"parameters": numpy.stack(found["parameters"])}


def function_of(source, name):
    """Return the function of a student's script that contains a gap. Raises StudentMistake if it is missing."""
    function = getattr(GapCode(source).module, name, None)
    if function is None:
        raise StudentMistake(f"the function `{name}` is missing: keep it")
    return function


def throughput(rank, ranks, source, case):
    """Return `images` and `throughput` as rank 0 reports them."""
    found = {}

    def see(names):
        found.update(reported_numbers(names, rank))
        raise StopScript

    sets = dataset(sum(case["lengths"])), examples(case["test_images"], 0)
    GapInScript(rank, ranks, source, case, *sets, before={"seconds": case["seconds"]}).run(see)
    return found


def pictures(images, alike, seed):
    """Return a data set of (1, 8, 8) images. alike: all images are equal, so that the result does not depend on their
    distribution."""
    generator = torch.Generator().manual_seed(seed)
    shown = torch.rand(images, 1, 8, 8, generator=generator)
    labels = torch.randint(10, (images,), generator=generator)
    return ImageDataset(
        shown[:1].expand_as(shown).clone() if alike else shown, labels, "pictures", None, tuple("0123456789")
    )


def run(rank, ranks, source, case):
    """Return the output of a whole run of `train`, its result, and its parameters at the end. The case describes the
    script, as for `GapInScript`."""
    models, start = [], model.ConvNet.__init__

    def note(made, *args, **options):
        start(made, *args, **options)
        models.append(made)

    seed = seed_of(case)
    args = arguments(ranks, case)
    vars(args).update(unit=case["task"], script=f"train_cifar_{case['task']}", dataset="pictures", size=64, lr=0.02)
    sets = pictures(case["images"], "ranks" in case, seed), pictures(7, False, seed)
    several = "ranks" in case
    if several:
        join(rank, ranks, case.get("ranks_per_node"))
    with mock.patch.object(model.ConvNet, "__init__", note):
        observations = whole.run(source, args, [rank] * several, sets)
    if not models:
        raise StudentMistake("the script creates no ConvNet")
    return observations | {"parameters": flat(models[-1].parameters())}
