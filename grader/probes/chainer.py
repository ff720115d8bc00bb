"""Probes for the Chainer track: each runs the code of one gap with inputs of its own."""

from types import SimpleNamespace
from unittest import mock

import handson.chainer  # before chainer: lets it run on today's NumPy
import chainer
import chainer.functions as F
import chainer.links as L
import numpy
from chainer.dataset import concat_examples
from chainer.iterators import SerialIterator
from chainer.serializers import DictionarySerializer, NpzDeserializer
from chainer.training.updaters import StandardUpdater

from grader.box.rank import Wrong
from grader.probes import whole
from grader.probes.communicator import join
from grader.probes.marks import marks, told
from grader.probes.student import Student
from handson.chainer import devices as handson_devices
from handson.chainer import model as handson_model
from handson.chainer.optimizers import create_multi_node_optimizer
from handson.training.data import ImageDataset

CPU = chainer.get_device("@numpy")


def dataset(images, seed=0):
    """A data set in which all numbers of image i are its mark, so that each sample can be recognised."""
    marked = marks(images, seed).reshape(-1, 1, 1, 1)
    return _dataset(numpy.broadcast_to(marked, (images, 1, 2, 2)).astype("float32"), numpy.arange(images) % 10)


def pictures(images, seed):
    """A data set of random images in double precision."""
    random = numpy.random.RandomState(seed)
    return _dataset(random.normal(size=(images, 1, 2, 2)), random.randint(10, size=images))


def _dataset(images, labels):
    return ImageDataset(images, labels.astype("int32"), "numbers", None, tuple("0123456789"))


def samples(batch, case, images="images"):
    """The numbers of the samples in a batch or a part of the case's `dataset`, which has case[images] images."""
    return told([image.flat[0] for image, _ in batch], case[images], case["seed"])


class Network(chainer.Chain):
    """A small network in double precision, always the same for a seed: (N, inputs) or (N, channels, H, W) to (N, 10)."""

    def __init__(self, seed, inputs=4):
        super().__init__()
        random = numpy.random.RandomState(seed)
        with self.init_scope():
            self.w1, self.b1 = chainer.Parameter(random.normal(size=(8, inputs))), chainer.Parameter(random.normal(size=8))
            self.w2, self.b2 = chainer.Parameter(random.normal(size=(10, 8))), chainer.Parameter(random.normal(size=10))

    def forward(self, images):
        return F.linear(F.tanh(F.linear(images, self.w1, self.b1)), self.w2, self.b2)


def network(seed):
    return L.Classifier(Network(seed))


def flat(model, what="array"):
    """All parameters of a model as one array; with what="grad", all gradients."""
    return numpy.concatenate([getattr(parameter, what).ravel() for _, parameter in sorted(model.namedparams())])


class Double:
    """A converter that doubles the images, so that its use shows in the results, and notes for which device each call was made."""

    def __init__(self):
        self.asked = []

    def __call__(self, batch, device):
        self.asked.append("none" if device is None else "cpu")
        images, labels = concat_examples(batch)
        return 2 * images, labels


class Gpu(chainer.backend.CpuDevice):
    """Stands for a GPU, with its number: what the replaced `devices.use` returns."""

    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu


@mock.patch.object(handson_devices, "use", lambda gpu: Gpu(int(gpu)))
def device(rank, ranks, source, case):
    """The GPU that each rank of several nodes would use. case["gpu"]: the GPUs of one node."""
    student, chosen, per_node = Student(source), [], len(case["gpu"])
    for number in range(case["workers"]):
        comm = SimpleNamespace(
            rank=number,
            size=case["workers"],
            intra_rank=number % per_node,
            intra_size=min(per_node, case["workers"]),
            inter_rank=number // per_node,
            inter_size=-(-case["workers"] // per_node),
        )
        try:
            found = student.run(args=SimpleNamespace(gpu=list(case["gpu"])), comm=comm).device
        except IndexError:
            where = f"rank {number}, of intra_rank {comm.intra_rank},"
            raise Wrong(f"{where} finds no GPU at its place in args.gpu, which lists those of one node: {case['gpu']}") from None
        if not isinstance(found, Gpu):
            raise Wrong(f"`device` is {found!r}, no device: `devices.use` gives one for the id of a GPU")
        chosen.append(found.gpu)
    return {"gpu": chosen}


def iterators(rank, ranks, source, case):
    """The batches of each training iterator in three epochs of four runs: one run, another one with the same seed, one with another seed,
    and one that is resumed in the second epoch. case["devices"]: for the script for several GPUs, with lists of parts and iterators."""
    student = Student(source)

    def make(seed, before):
        numpy.random.seed(before)  # a run's order must not depend on random numbers that were drawn before it
        gpus = {f"gpu{number}" if number else "main": number for number in range(case.get("devices", 1))}
        args = SimpleNamespace(batchsize=case["batchsize"], seed=seed, gpu=list(gpus.values()))
        data = dataset(case["images"], case["seed"])
        names = student.run(train_set=data, args=args, gpus=gpus, comm=SimpleNamespace(rank=0, size=2, intra_rank=0))
        if "devices" not in case:
            return [data], [names.train_iterator]
        if not isinstance(names.train_iterators, (list, tuple)):
            raise Wrong(f"`train_iterators` is a {type(names.train_iterators).__name__}, not a list")
        return list(names.parts), list(names.train_iterators)

    def passes(made):
        return [_pass(iterator, case) for iterator in made]

    seed = case["seed"] % 1000
    parts, first = make(seed, 1)
    again_parts, again = make(seed, 2)
    _, other = make(seed + 1, 3)
    samples_of_parts = [samples(part, case) for part in parts]
    passed = passes(first)
    observations = {
        "parts": samples_of_parts,
        "orders": [_epochs(one, part) for one, part in zip(passed, samples_of_parts)],
        "parts again": [samples(part, case) for part in again_parts],
        "first": passed,
        "again": passes(again),
        "other": passes(other),
    }
    (parts, begun), (_, resumed) = make(seed, 4), make(seed, 5)
    for part, one, its_continuation in zip(parts, begun, resumed):
        for _ in range(len(part) // case["batchsize"] + 1):  # to somewhere in the second epoch
            next(one, None)
        snapshot = DictionarySerializer()
        one.serialize(snapshot)
        its_continuation.serialize(NpzDeserializer(snapshot.target))
    return observations | {"resumed": passes(resumed)}


def _pass(iterator, case):
    """The batches of an iterator until three epochs are over."""
    batches, ended = [], False
    while iterator.epoch < 3 and not ended and len(batches) <= 3 * case["images"]:
        batch = next(iterator, None)
        ended = batch is None
        batches += [] if ended else [samples(batch, case)]
    iterator.finalize()
    return {"batches": batches, "ended": ended}


def _epochs(one, part):
    """The order of the samples in each of three epochs. A batch may lie in two epochs, or end with its epoch."""
    used = [sample for batch in one["batches"] for sample in batch]
    return [used[begin : begin + len(part)] for begin in range(0, 3 * len(part), len(part))]


def part(case, worker):
    """The images of a worker (a rank or a device) for all updates of a case."""
    images = case["batchsize"] * case["updates"]
    data = pictures(images * case["workers"], case["seed"])
    return chainer.datasets.SubDataset(data, worker * images, (worker + 1) * images)


def serial(case, worker):
    """An iterator over a worker's `part`, in order."""
    return SerialIterator(part(case, worker), case["batchsize"], shuffle=False)


def sgd(case):
    return chainer.optimizers.MomentumSGD(case["lr"], momentum=0.9)


def _options(case):
    return SimpleNamespace(
        lr=case["lr"], batchsize=case["batchsize"], gpu=list(range(case["workers"])), seed=0, size=256, epoch=4, double_buffering=False
    )


def _gpus(case):
    return {f"gpu{number}" if number else "main": number for number in range(case["workers"])}


def _trace(updater, case):
    """The parameters of the updater's model after each update."""
    model, trace = updater.get_optimizer("main").target, []
    for _ in range(case["updates"]):
        updater.update()
        trace.append(flat(model))
    updater.finalize()
    return numpy.stack(trace)


def optimizer(rank, ranks, source, case):
    """The parameters after each update by the gap's optimizer. Every rank has its own optimizer."""
    comm = join(rank, ranks) if case.get("multi_node") else None
    model = network(case["seed"] + rank)  # different parameters on every rank
    names = Student(source).run(model=model, args=_options(case), gpus=_gpus(case), comm=comm, device=CPU)
    if getattr(names.optimizer, "target", None) is not model:
        raise Wrong("`optimizer` does not know the model's parameters: it is not set up for `model`")
    return {"parameters": _trace(StandardUpdater(serial(case, rank), names.optimizer, device=CPU), case)}


def updater(rank, ranks, source, case):
    """The parameters after each update by the gap's updater, and the devices for which it called the converter."""
    comm = join(rank, ranks) if case.get("multi_node") else None
    model, convert, optimizer = network(case["seed"]), Double(), sgd(case)
    optimizer = create_multi_node_optimizer(optimizer, comm) if comm else optimizer
    optimizer.setup(model)
    names = Student(source).run(
        train_iterator=serial(case, rank),
        train_iterators=[serial(case, worker) for worker in range(case["workers"])],
        test_iterator=SerialIterator(pictures(case["batchsize"], case["seed"] + 1), case["batchsize"], shuffle=False),
        optimizer=optimizer,
        model=model,
        convert=convert,
        device=CPU,
        gpus=_gpus(case),
        args=_options(case),
        comm=comm,
    )
    if not isinstance(names.updater, StandardUpdater):
        raise Wrong(f"`updater` is a {type(names.updater).__name__}, which is no updater")
    return {"parameters": _trace(names.updater, case), "asked": convert.asked}


def throughput(rank, ranks, source, case):
    """`images` and `throughput` as each worker that runs the gap's code would report them."""
    student, found, lengths = Student(source), [], case["lengths"]
    parts = [dataset(length) for length in lengths]
    for number in range(1 if case.get("devices") else len(lengths)):
        names = student.run(
            args=SimpleNamespace(epoch=case["epoch"], batchsize=case["batchsize"], gpu=list(range(len(lengths)))),
            first_epoch=case["first_epoch"],
            seconds=case["seconds"],
            train_set=dataset(sum(lengths)) if case.get("devices") else parts[number],
            parts=parts,
            gpus={f"gpu{index}" if index else "main": index for index in range(len(lengths))},
            images_in_all=sum(lengths),
            comm=SimpleNamespace(rank=number, size=len(lengths), intra_rank=number),
            updater=SimpleNamespace(iteration=case["epoch"] * lengths[0] // case["batchsize"], epoch=case["epoch"]),
        )
        found.append([float(names.images), float(names.throughput)])
    return {"found": found}


class NetworkOfRun(Network):
    """Takes the place of ConvNet in a whole run. With ConvNet, batch normalisation and rounding give a batch other results than its parts."""

    SIZE = 4  # pixels, after enlarging
    made = []

    def __init__(self, classes=10):
        super().__init__(numpy.random.randint(1 << 31), 3 * self.SIZE**2)  # the run has seeded numpy.random
        self.made.append(self)


@mock.patch.object(handson_model, "ConvNet", NetworkOfRun)
def run(rank, ranks, source, case):
    """What a whole run of `train` prints and writes, and its parameters at the end."""
    NetworkOfRun.made.clear()
    seed, args = case["seed"] % 1000, _options(case)
    vars(args).update(workers=case["workers"], nodes=1, unit=case["task"], script=f"train_cifar_{case['task']}", track="chainer", dataset="pictures", seed=seed)
    vars(args).update(size=NetworkOfRun.SIZE, epoch=case["epochs"], resume=None, devices=f"{case['workers']} virtual GPUs")
    sets = (pictures(case["images"], seed), pictures(7, seed + 1)) if rank == 0 else (None, None)
    comm = [join(rank, ranks, case["ranks_per_node"])] if case["task"] == "multi_node" else []
    observations = whole.run(source, args, comm, sets)
    if not NetworkOfRun.made:
        raise Wrong("no ConvNet was made")
    return observations | {"parameters": flat(NetworkOfRun.made[-1])}
