"""Probes for the Chainer track: each runs one gap in its place in the script, with its own data, and observes the
effects."""

import contextlib
import copy
import tempfile
from numbers import Integral
from pathlib import Path
from unittest import mock

import handson.chainer  # noqa: F401  before chainer: lets it run on today's NumPy
import chainer
import chainer.functions as F
import chainer.links as L
import numpy
from chainer.dataset import concat_examples, convert
from chainer.datasets import SubDataset
from chainer.iterators import SerialIterator
from chainer.serializers import DictionarySerializer, NpzDeserializer
from chainer.training.updaters import StandardUpdater

from grader.sandbox.rank import StudentMistake
from grader.probes import whole
from grader.probes.gloo_for_chainermn import join
from grader.probes.marks import mark, marks, samples_of
from grader.probes.script import StopScript, Script, only_one, options_of, reported_numbers
from handson.chainer import communicators, optimizers, reports, updaters
from handson.chainer import data as handson_data
from handson.chainer import devices as handson_devices
from handson.chainer import model as handson_model
from handson.chainer.mean_gradients import MeanGradients
from handson.chainer.optimizers import create_multi_node_optimizer
from handson.training import banner, data
from handson.training.data import ImageDataset
from handson.words import a_kind

SIZE = 2  # args.size, and the side of an image in pixels, so that images have the shape of enlarged ones


class OwnDevice(chainer.backend.CpuDevice):
    """The result of `devices.use` in a probe. Converters recognise it by a number, like a GPU."""

    class Number(int):
        """The number -1, with which NumPy's arrays stay unchanged, but no other -1."""


DEVICE, NUMBER = OwnDevice(), OwnDevice.Number(-1)


def call_converter(converter, batch, device, of_chainer=convert._call_converter):
    """Call a converter as Chainer does, but pass NUMBER instead of DEVICE to functions."""
    return (
        converter(batch, NUMBER)
        if device is DEVICE and not isinstance(converter, convert.Converter)
        else of_chainer(converter, batch, device)
    )


def dataset(images, seed=0):
    """Return a data set in which all numbers of image i are its mark, so that each sample can be recognised."""
    marked = marks(images, seed).reshape(-1, 1, 1, 1)
    return _dataset(numpy.broadcast_to(marked, (images, 3, SIZE, SIZE)).astype("float32"), numpy.arange(images) % 10)


def pictures(images, seed):
    """Return a data set of random images in double precision."""
    random = numpy.random.RandomState(seed)
    return _dataset(random.normal(size=(images, 3, SIZE, SIZE)), random.randint(10, size=images))


def _dataset(images, labels):
    return ImageDataset(images, labels.astype("int32"), "numbers", Path("numbers.npz"), tuple("0123456789"))


def samples(batch, case):
    """Return the numbers of the samples in a batch or a part of the case's `dataset`. Raises Wrong."""
    pairs = list(batch)
    found = samples_of([mark(image) for image, _ in pairs], case["images"], case["seed"], case.get("tests", 0))
    if others := sum(int(label) != number % 10 for number, (_, label) in zip(found, pairs)):
        raise StudentMistake(
            f"{others} of {len(found)} images have the label of another image: split images and labels in the same way"
        )
    return found


def part(whole_set, lengths, worker):
    """Return the part of a worker (a rank or a device), if a data set is split in order. lengths: the lengths of all
    workers' parts."""
    return SubDataset(whole_set, sum(lengths[:worker]), sum(lengths[: worker + 1]))


def serial(part, case):
    """Return an iterator over a part, in order."""
    return SerialIterator(part, case.get("batchsize", 32), shuffle=False)


class Network(chainer.Sequential):
    """A small network in double precision that replaces ConvNet: (N, inputs) or (N, channels, H, W) to (N, 10).
    numpy.random draws its parameters; two of them have the names of batch normalisation's. `passes` records whether
    each forward pass is in training mode."""

    def __init__(self, classes=10, inputs=3 * SIZE**2):
        random = numpy.random.RandomState(numpy.random.randint(1 << 31))
        with chainer.using_config("dtype", numpy.dtype("float64")):
            first = L.Linear(inputs, 8, initialW=random.normal(size=(8, inputs)), initial_bias=random.normal(size=8))
            scale = Scale(1 + random.normal(size=8) / 4, random.normal(size=8) / 4)
            last = L.Linear(
                8, classes, initialW=random.normal(size=(classes, 8)), initial_bias=random.normal(size=classes)
            )
        super().__init__(first, F.tanh, scale, last)
        self.passes = []

    def forward(self, images):
        self.passes.append(bool(chainer.config.train))
        return super().forward(images)


class Scale(chainer.Link):
    """The scaling of batch normalisation: (N, units) to (N, units)."""

    def __init__(self, gamma, beta):
        super().__init__()
        with self.init_scope():
            self.gamma, self.beta = chainer.Parameter(gamma), chainer.Parameter(beta)

    def forward(self, values):
        return F.scale(values, self.gamma) + F.broadcast_to(self.beta, values.shape)


def network(seed):
    """Return the model that a script creates with args.seed = `seed`."""
    numpy.random.seed(seed)
    return L.Classifier(Network())


def flat(model, what="array"):
    """Return all parameters of a model as one array; with what="grad", all gradients."""
    return numpy.concatenate([getattr(parameter, what).ravel() for _, parameter in sorted(model.namedparams())])


class Double:
    """A replacement of Enlarge that multiplies images by the size, which is 2, so that the results show its use. It
    records the device of each call (the script's `device`, the CPU or none), and a wrong size."""

    asked = []

    def __init__(self, size=SIZE):
        self.size = size

    def __call__(self, batch, device):
        here = device is DEVICE or device is NUMBER
        self.asked.append("size" if self.size != SIZE else "none" if device is None else "device" if here else "cpu")
        images, labels = concat_examples(batch)
        return self.size * images, labels


def enlarge(images, size):
    """Replace data.enlarge, which a student's own converter calls, like Double."""
    Double.asked.append("device" if size == SIZE else "size")
    return images * size


class AtOnce(MeanGradients):
    """A replacement of MeanGradients, in which gradients arrive immediately instead of during the next batch."""

    start = MeanGradients.all_reduce

    def wait(self):
        pass


class Gpu(chainer.backend.CpuDevice):
    """A replacement of a GPU, with its number: the result of the replaced `devices.use`."""

    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu


class Reading(StandardUpdater):
    """A stand-in for an updater: it takes batches from the main iterator without training. The iterators of the other
    devices run in their own processes."""

    def update_core(self):
        self.get_iterator("main").next()

    def get_all_iterators(self):
        return self._iterators.values()


def seed_of(case):
    """Return args.seed."""
    return case["seed"] % 1000


def sgd(case):
    return chainer.optimizers.MomentumSGD(case.get("lr", 0.02), momentum=0.9)


def workers_of(ranks, case):
    """Return the number of workers: ranks, or devices of one process."""
    return case.get("workers", ranks)


def arguments(ranks, case):
    """Return `args` in the state after options.parse and announce."""
    unit, workers = case["unit"], workers_of(ranks, case)
    more = communicators.add_options if "ranks_per_node" in case else None
    args = options_of(f"00_{unit}/chainer/train_cifar_{unit}.py", workers, more)
    vars(args).update(
        {name: case[name] for name in ("batchsize", "lr", "gpu") if name in case},
        seed=seed_of(case),
        size=SIZE,
        dataset="numbers",
    )
    vars(args).update(
        workers=workers, nodes=-(-ranks // case.get("ranks_per_node", ranks)), devices=f"{workers} virtual GPUs"
    )
    vars(args).update(communicator="naive" if "ranks_per_node" in case else "", network="")
    vars(args).update(epoch=case.get("epochs", 4), out=Path(tempfile.mkdtemp(dir=".")), resume=None)
    return args


class GapInScript:
    """A gap in the script of the case's unit, on one rank. It is a script for several nodes if the case has
    "ranks_per_node", and one for several devices of one process if it has "workers".

    `train_set`: that of the whole run; lengths: the images of each worker; test_lengths: the test images of each rank;
    first_epoch: above 0 for a run that is resumed there; before, stand_ins: as for Script, additions to the ones
    below.
    """

    def __init__(
        self,
        rank,
        ranks,
        source,
        case,
        train_set,
        lengths,
        test_set=None,
        test_lengths=None,
        first_epoch=0,
        before=None,
        **stand_ins,
    ):
        self.rank, self.case, self.train_set, self.lengths, self.first_epoch = (
            rank,
            case,
            train_set,
            lengths,
            first_epoch,
        )
        self.test_lengths = test_lengths or [1] * ranks
        self.test_set = test_set or pictures(sum(self.test_lengths), 0)
        self.args = arguments(ranks, case)
        self.args.resume = Path(f"snapshot_epoch_{first_epoch}") if first_epoch else None
        several_nodes = "ranks_per_node" in case
        self.comm = [join(rank, ranks, case["ranks_per_node"], case.get("in_turn", False))] if several_nodes else []
        self.sets = (None, None) if several_nodes and rank > 0 else (train_set, self.test_set)
        replaced = (
            (handson_model, "ConvNet", Network),
            (handson_data, "Enlarge", Double),
            (data, "enlarge", enlarge),
            (reports, "resume", self._resume),
        )
        replaced += ((optimizers, "MeanGradients", AtOnce), (convert, "_call_converter", call_converter))
        self.script = Script(
            source, self._stand_ins(several_nodes) | stand_ins, before or {}, (*Script.replaced, *replaced)
        )

    def run(self, see, begin=lambda names: None, **options):
        """Run like Script.run. options: the attributes of `args`."""
        # values that code of an earlier run may read later, such as the seed
        self.args = copy.copy(self.args)
        vars(self.args).update(options)
        self.script.run(see, *self.comm, self.args, *self.sets, begin=begin)

    def _stand_ins(self, several_nodes):
        def parts():
            return [part(self.train_set, self.lengths, worker) for worker in range(len(self.lengths))]

        def scattered():
            return part(self.train_set, self.lengths, self.rank), part(self.test_set, self.test_lengths, self.rank)

        def optimizer(model):
            of_ranks = create_multi_node_optimizer(sgd(self.case), *self.comm) if several_nodes else sgd(self.case)
            return of_ranks.setup(model)

        def reading(optimizer, train_iterators):
            return Reading(banner.name_devices(train_iterators), optimizer)

        several_devices = "workers" in self.case
        return {
            "device": ("device", lambda: DEVICE),
            "devices": ("gpus", lambda args: banner.name_devices(args.gpu)),
            "iterators": ("parts train_iterators", lambda: (parts(), [serial(one, self.case) for one in parts()])),
            "scatter": ("train_set test_set", scattered),
            "iterator": ("train_iterator", lambda train_set: serial(train_set, self.case)),
            "optimizer": ("optimizer", optimizer),
            "updater": (
                "updater",
                reading if several_devices else lambda optimizer, train_iterator: reading(optimizer, [train_iterator]),
            ),
            "evaluator": ("evaluator", lambda evaluator: evaluator),
            "throughput": ("", _enough),
        }

    def _resume(self, trainer, path):
        for iterator in trainer.updater.get_all_iterators():
            iterator._state = iterator._state._replace(epoch=self.first_epoch)
        trainer.updater.iteration = self.first_epoch * max(self.lengths) // self.args.batchsize
        return trainer.updater.epoch


def _enough():
    raise StopScript


def device(rank, ranks, source, case):
    """Return the GPU that this rank uses, if `device` is the one that it requests; otherwise words. case["gpu"]: the
    GPUs of one node."""
    used, found = [], []

    def use(gpu):
        if not isinstance(gpu, Integral):
            raise StudentMistake(f"`devices.use` is called with {gpu!r}, but it takes the id of a GPU")
        used.append(Gpu(int(gpu)))
        return used[-1]

    def see(names):
        only_one([one.gpu for one in used])
        found.append(used[-1].gpu if used and names.device is used[-1] else f"{names.device!r:.60}")
        raise StopScript

    with mock.patch.object(handson_devices, "use", use):
        try:
            GapInScript(rank, ranks, source, case, dataset(ranks), [1] * ranks).run(see)
        except IndexError:
            return {"gpu": "nowhere"}
    return {"gpu": found[0]}


def iterators(rank, ranks, source, case):
    """Return the batches of each training iterator in three epochs of four runs (one run, another with the same seed,
    one with another seed, and one resumed in the second epoch), and whether the gap has taken a batch already
    ("begun"). case["workers"]: the number of GPUs, in the script for several."""
    several = "workers" in case
    workers = workers_of(ranks, case)
    lengths = [case["images"] // workers] * workers if several else [case["images"]] * ranks
    everything = dataset(case["images"] if several else sum(lengths), case["seed"])
    marked = case | {"images": len(everything), "tests": 2 * ranks}
    place = GapInScript(
        rank, ranks, source, case, everything, lengths, dataset(marked["tests"], case["seed"] + 1), [2] * ranks
    )

    taken = []

    def make(seed, before):
        numpy.random.seed(before)  # a run's order must not depend on random numbers that were drawn before it
        made = []

        def see(names):
            made.append(
                ([names.train_set], [names.train_iterator]) if not several else (names.parts, names.train_iterators)
            )
            raise StopScript

        place.run(see, seed=seed)
        ((parts, iterators),) = made
        for name, things in (("parts", parts), ("train_iterators", iterators)):
            if not isinstance(things, (list, tuple)):
                raise StudentMistake(f"`{name}` is {a_kind(things)}, but it must be a list")
        if strange := [one for one in iterators if not isinstance(one, chainer.dataset.Iterator)]:
            raise StudentMistake(
                f"`train_iterator{'s' * several}` {'has' if several else 'is'} {a_kind(strange[0])}, which"
                " is not an iterator of Chainer"
            )
        taken.append([getattr(one, "epoch_detail", 0) > 0 for one in iterators])
        for one in (one for one, begun in zip(iterators, taken[-1]) if begun):
            with contextlib.suppress(AttributeError, NotImplementedError):
                one.reset()  # batches that the gap took do not affect the order
        return list(parts), list(iterators)

    def passes(made):
        return [_pass(iterator, marked) for iterator in made]

    seed = seed_of(case)
    parts, first = make(seed, 1)
    again_parts, again = make(seed, 2)
    other_parts, other = make(seed + 1, 3)
    samples_of_parts = [samples(part, marked) for part in parts]
    passed = passes(first)
    observations = {
        "parts": samples_of_parts,
        "orders": [_epochs(one, part) for one, part in zip(passed, samples_of_parts)],
        "parts again": [samples(part, marked) for part in again_parts],
        "other parts": [samples(part, marked) for part in other_parts],
        "first": passed,
        "again": passes(again),
        "other": passes(other),
        "begun": taken[0],
    }
    (parts, begun), (_, resumed) = make(seed, 4), make(seed, 5)
    for part, one, its_continuation in zip(parts, begun, resumed):
        for _ in range(len(part) // case["batchsize"] + 1):  # takes batches up to a position in the second epoch
            _batch(one)
        snapshot = DictionarySerializer()
        one.serialize(snapshot)
        written = snapshot.target if rank == 0 else None  # only rank 0 writes a snapshot
        of_rank_0 = place.comm[0].bcast_obj(written) if place.comm else written
        its_continuation.serialize(NpzDeserializer(of_rank_0))
    return observations | {"resumed": passes(resumed)}


def _pass(iterator, case):
    """Return the batches of an iterator until the end of three epochs."""
    batches, ended = [], False
    while iterator.epoch < 3 and not ended and len(batches) <= 3 * case["images"]:
        batch = _batch(iterator)
        ended = batch is None
        batches += [] if ended else [samples(batch, case)]
    iterator.finalize()
    return {"batches": batches, "ended": ended}


def _batch(iterator):
    """Return the next batch, or None. SerialIterator divides by zero if its data set is empty."""
    return next(iterator, None) if len(getattr(iterator, "dataset", [0])) else None


def _epochs(one, part):
    """Return the order of the samples in each of three epochs. A batch may extend over two epochs, or end with its
    epoch."""
    used = [sample for batch in one["batches"] for sample in batch]
    return [used[epoch * len(part) :][: len(part)] for epoch in range(3)]


def gradients(case, rank, numbers):
    """Return the gradients for `optimizer` on a rank: (updates, numbers). They get smaller with each update, so that a
    change of their length is visible."""
    return (
        numpy.random.RandomState(case["seed"] + rank).normal(size=(case["updates"], numbers))
        * numpy.arange(case["updates"], 0, -1)[:, None]
    )


def optimizer(rank, ranks, source, case):
    """Return the parameters before and after updates with given gradients, which differ between ranks. With several
    devices of one process, the last gradients update once more, at a rate divided by the number of devices, like the
    updater's."""
    trace, workers = [], workers_of(ranks, case)

    def see(names):
        model, optimizer = names.model, names.optimizer
        if not hasattr(optimizer, "update"):
            raise StudentMistake(f"`optimizer` is {a_kind(optimizer)}, which is not an optimizer")
        if getattr(optimizer, "target", None) is not model:
            raise StudentMistake("`optimizer` has no parameters to update: call its `setup(model)`")
        trace.append(flat(model))
        given = list(gradients(case, rank, len(trace[0])))
        for number, of_update in enumerate([*given, given[-1]] if "workers" in case else given):
            if number == len(given):
                optimizer.lr /= workers
            for _, parameter in sorted(model.namedparams()):
                parameter.grad, of_update = (
                    of_update[: parameter.size].reshape(parameter.shape),
                    of_update[parameter.size :],
                )
            optimizer.update()
            trace.append(flat(model))
            if number == int("ranks_per_node" in case):  # after the first real update
                optimizer.new_epoch(auto=optimizer.use_auto_new_epoch)
        raise StopScript

    GapInScript(rank, ranks, source, case, pictures(workers, 0), [1] * workers).run(
        see, **{name: case[name] for name in ["double_buffering"] if name in case}
    )
    return {"parameters": numpy.stack(trace)}


def updater(rank, ranks, source, case):
    """Return the parameters after each update by the gap's updater; the devices for which it called the converter
    ("asked"); its GPUs ("gpu"), if it is the course's updater for several; whether all images pass through the network
    in training mode, how often in each update ("passes"); and the names of the reports ("reported")."""
    trace, gpus, passes, counts, reported, workers = [], [], [], [], {}, workers_of(ranks, case)
    Double.asked.clear()

    def see(names):
        if not isinstance(names.updater, StandardUpdater):
            raise StudentMistake(f"`updater` is {a_kind(names.updater)}, which is not an updater")
        if isinstance(names.updater, updaters.MultiprocessParallelUpdater):
            gpus.extend(names.updater._devices.values())
        reporter, passed = chainer.Reporter(), names.model.predictor.passes
        reporter.add_observer("main", names.model)  # Trainer does the same
        reporter.add_observers("main", names.model.namedlinks(skipself=True))
        for _ in range(case["updates"]):
            before = len(passed)
            with reporter.scope(reported):
                names.updater.update()
            counts.append(len(passed) - before)
            trace.append(flat(names.model))
        names.updater.finalize()
        passes.extend(passed)
        raise StopScript

    lengths = [case["batchsize"] * case["updates"]] * workers
    sets = pictures(sum(lengths), case["seed"]), lengths, pictures(sum(lengths), case["seed"] + 1), lengths
    GapInScript(rank, ranks, source, case, *sets).run(see)
    how = {"training": all(passes), "passes": counts, "reported": sorted(reported)}
    return {"parameters": numpy.stack(trace), "asked": list(Double.asked), "gpu": gpus} | how


def throughput(rank, ranks, source, case):
    """Return `images` and `throughput` as rank 0 reports them. case["images"]: if the parts omit some images."""
    found = {}

    def see(names):
        found.update(reported_numbers(names, rank))
        raise StopScript

    everything = dataset(case.get("images", sum(case["lengths"])))
    test_lengths, before = [case["test_images"] // ranks] * ranks, {"seconds": case["seconds"]}
    GapInScript(
        rank, ranks, source, case, everything, case["lengths"], None, test_lengths, case["first_epoch"], before
    ).run(see)
    return found


class NetworkOfRun(Network):
    """A replacement of ConvNet in a whole run, because ConvNet's batch normalisation and rounding give a batch other
    results than its parts."""

    SIZE = 4  # pixels, after enlarging
    made = []

    def __init__(self, classes=10):
        super().__init__(classes, 3 * self.SIZE**2)
        self.made.append(self)


@mock.patch.object(handson_model, "ConvNet", NetworkOfRun)
def run(rank, ranks, source, case):
    """Return the output of a whole run of `train`, its result, and its parameters at the end."""
    NetworkOfRun.made.clear()
    seed, args = seed_of(case), arguments(ranks, case)
    vars(args).update(
        unit=case["task"], script=f"train_cifar_{case['task']}", dataset="pictures", size=NetworkOfRun.SIZE
    )
    sets = (pictures(case["images"], seed), pictures(7, seed + 1)) if rank == 0 else (None, None)
    comm = [join(rank, ranks, case["ranks_per_node"])] if "ranks_per_node" in case else []
    observations = whole.run(source, args, comm, sets)
    if not NetworkOfRun.made:
        raise StudentMistake("the script creates no ConvNet")
    return observations | {"parameters": flat(NetworkOfRun.made[-1])}
