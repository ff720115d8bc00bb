"""MultiprocessParallelUpdater on CPUs: Chainer's semantics, and an end to every run."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import handson.chainer  # noqa: F401
from handson.chainer.cpu_updater import MultiprocessParallelUpdater

import chainer
import chainer.functions as F
import chainer.links as L
import numpy
import pytest
from chainer import training
from chainer.iterators import SerialIterator
from chainer.training import extensions
from waiting import run_to_end

from handson.errors import TrackError, WorkerError

ROOT = Path(__file__).resolve().parents[2]
BATCH = 4
pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore:optimizer")]


class Net(chainer.Chain):
    """Layers of odd sizes, one without a size yet, and one that the loss does not use."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.first = L.Convolution2D(1, 3, 3)
            self.last = L.Linear(None, 5)
            self.unused = L.Linear(2, 2)

    def forward(self, x):
        return self.last(F.relu(self.first(x)))


class SeenDataset(chainer.dataset.DatasetMixin):
    """Counts, over all processes, how often each sample was taken."""

    def __init__(self, length):
        random = numpy.random.RandomState(3)
        self.images = random.rand(length, 1, 6, 6).astype("f")
        self.labels = random.randint(5, size=length).astype("i")
        self.times = multiprocessing.RawArray("i", length)

    def __len__(self):
        return len(self.labels)

    def get_example(self, i):
        self.times[i] += 1
        return self.images[i], self.labels[i]


def make_model(seed=0):
    numpy.random.seed(seed)
    return L.Classifier(Net())


def make_updater(devices, model=None, optimizer=None, length=24, iterators=None, **options):
    names = {"main" if index == 0 else f"gpu{index}": index for index in range(devices)}
    if iterators is None:
        parts = chainer.datasets.split_dataset_n_random(SeenDataset(length), devices, seed=5)
        iterators = [SerialIterator(part, BATCH, shuffle=False) for part in parts]
    optimizer = (optimizer or chainer.optimizers.MomentumSGD(0.05)).setup(model or make_model())
    return MultiprocessParallelUpdater(iterators, optimizer, devices=names, **options)


@pytest.fixture
def updater_of():
    """``make_updater`` whose updaters end with the test."""
    made = []

    def make(*arguments, **options):
        made.append(make_updater(*arguments, **options))
        return made[-1]

    yield make
    for updater in made:
        updater.finalize()
    assert not multiprocessing.active_children()


def arrays(model):
    return {name: parameter.array for name, parameter in sorted(model.namedparams())}


def assert_equal_models(one, other, tolerance):
    for name, array in arrays(one).items():
        numpy.testing.assert_allclose(array, arrays(other)[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("optimizer", [chainer.optimizers.MomentumSGD, chainer.optimizers.Adam])
def test_an_update_equals_one_step_with_all_batches_at_once(devices, optimizer, updater_of):
    """The mean over one big batch is the mean of equal parts' means, so nothing but rounding may differ."""
    updater = updater_of(devices, optimizer=optimizer(0.05))
    model, alone = updater.get_optimizer("main").target, make_model()
    parts = [updater.get_iterator("main").dataset, *(iterator.dataset for iterator in updater._others.values())]
    big_step = optimizer(0.05).setup(alone)
    for step in range(3):
        numpy.random.seed(step)  # the last layer draws its weights when it first sees data
        updater.update()
        numpy.random.seed(step)
        indices = [(step * BATCH + i) % len(parts[0]) for i in range(BATCH)]
        images, labels = chainer.dataset.concat_examples([part[i] for part in parts for i in indices])
        loss = alone(images, labels)
        alone.cleargrads()
        loss.backward()
        big_step.update()
        assert_equal_models(model, alone, 2e-6)


def test_the_learning_rate_is_divided_with_the_lectures_warning():
    with pytest.warns(UserWarning) as record:
        updater = make_updater(4, optimizer=chainer.optimizers.MomentumSGD(0.1))
    assert [str(warning.message) for warning in record] == [
        "optimizer.lr is changed to 0.025 by MultiprocessParallelUpdater for new batch size: the gradients of its 4"
        " devices are added up, not averaged, so an update must be scaled down to be that of their mean."
    ]
    assert record[0].filename == __file__ and updater.get_optimizer("main").lr == 0.025


@pytest.mark.parametrize(
    "optimizer, factor",
    [
        (chainer.optimizers.Adam, 3),
        (chainer.optimizers.AdaGrad, 3),
        (chainer.optimizers.RMSpropGraves, 9),
        (chainer.optimizers.AdaDelta, 9),
    ],
)
def test_optimizers_that_normalize_gradients_have_their_eps_changed_instead(optimizer, factor):
    updater = make_updater(3, optimizer=optimizer())
    assert updater.get_optimizer("main").eps == pytest.approx(optimizer().eps * factor)


def test_every_sample_is_used_once_an_epoch(updater_of):
    dataset = SeenDataset(24)
    parts = chainer.datasets.split_dataset_n_random(dataset, 3)
    updater = updater_of(3, iterators=[SerialIterator(part, BATCH) for part in parts])
    updater.setup_workers()
    dataset.times[:] = [0] * 24  # finding the sizes of layers looks at one sample
    while updater.epoch < 2:
        updater.update()
    assert list(dataset.times) == [2] * 24


def run_trainer(out, epochs, resume=None):
    dataset = SeenDataset(24)
    numpy.random.seed(7)
    iterators = [SerialIterator(part, BATCH) for part in chainer.datasets.split_dataset_n_random(dataset, 2, seed=5)]
    model = L.Classifier(L.Linear(36, 5))
    updater = make_updater(2, model=model, iterators=iterators)
    trainer = training.Trainer(updater, (epochs, "iteration"), out=str(out))
    trainer.extend(extensions.Evaluator(SerialIterator(dataset, BATCH, repeat=False, shuffle=False), model))
    trainer.extend(extensions.LogReport(trigger=(1, "epoch")))
    trainer.extend(
        extensions.PrintReport(["epoch", "main/loss", "validation/main/accuracy", "elapsed_time"], out=sys.stdout)
    )
    trainer.extend(extensions.snapshot(filename="snapshot"), trigger=(2, "iteration"))
    if resume:
        chainer.serializers.load_npz(resume, trainer)
    trainer.run()
    return model, dataset, trainer


def test_it_serves_a_trainer_with_its_extensions(tmp_path, capsys):
    _, _, trainer = run_trainer(tmp_path, 6)
    assert "validation/main/accuracy" in capsys.readouterr().out
    assert [line["epoch"] for line in trainer.get_extension("LogReport").log] == [1, 2]
    assert not multiprocessing.active_children()


def test_a_snapshot_remembers_where_each_device_was(tmp_path, capsys):
    """Interrupted in mid-epoch: the samples of the second part of the run are those that the first has not used."""
    _, first, _ = run_trainer(tmp_path, 2)
    used = {i for i in range(24) if first.times[i] == 1}
    _, second, _ = run_trainer(tmp_path / "second", 3, resume=tmp_path / "snapshot")
    # once for training, once for the evaluation that closes the epoch
    rest = {i for i in range(24) if second.times[i] == 2}
    assert len(used) == 16 and rest == set(range(24)) - used


def test_a_snapshot_of_other_devices_is_refused(tmp_path, capsys):
    run_trainer(tmp_path, 2)
    updater = make_updater(3, model=L.Classifier(L.Linear(36, 5)))
    with pytest.raises(TrackError, match="it is from a run with devices other than main, gpu1, gpu2"):
        chainer.serializers.load_npz(tmp_path / "snapshot", updater, path="updater/")


class Spy(chainer.Chain):
    """Calls ``tell`` in every forward pass of training."""

    def __init__(self, tell):
        super().__init__()
        self.tell = tell
        with self.init_scope():
            self.layer = L.Linear(36, 5)

    def forward(self, images, labels):
        self.tell()
        return F.softmax_cross_entropy(self.layer(images), labels)


def test_each_device_is_a_process_pinned_to_the_core_of_its_id(updater_of):
    cores = sorted(os.sched_getaffinity(0))
    seen = multiprocessing.SimpleQueue()
    updater = updater_of(3, model=Spy(lambda: seen.put((os.getpid(), sorted(os.sched_getaffinity(0))))))
    updater.update()
    places = dict(seen.get() for _ in range(3))
    assert len(places) == 3 and places.pop(os.getpid()) == cores[:1]
    assert sorted(places.values()) == sorted([[cores[1 % len(cores)]], [cores[2 % len(cores)]]])
    updater.finalize()
    assert sorted(os.sched_getaffinity(0)) == cores


@pytest.mark.parametrize(
    "devices, sentence",
    [
        ({"gpu0": 0, "gpu1": 1}, "devices must have one called 'main'"),
        ({"main": 0, "gpu1": 1, "gpu2": 2}, "one iterator per device, but there are 2 iterators and 3 devices"),
        ({"main": 0}, "one iterator per device, but there are 2 iterators and 1 device:"),
        ({"main": 0, "gpu1": None}, "device 'gpu1' must have an id of 0 or more, not None"),
        ({"main": 0, "gpu1": -1}, "device 'gpu1' must have an id of 0 or more, not -1"),
        (None, "devices must be names and ids"),
    ],
)
def test_devices_that_cannot_work_are_named(devices, sentence):
    iterators = [SerialIterator(SeenDataset(8), BATCH) for _ in range(2)]
    optimizer = chainer.optimizers.SGD(0.1).setup(make_model())
    with pytest.raises(TrackError, match=sentence):
        MultiprocessParallelUpdater(iterators, optimizer, devices=devices)
    assert optimizer.lr == 0.1


@pytest.mark.parametrize(
    "other, sentence",
    [
        (SerialIterator(SeenDataset(9), BATCH), "data sets of different lengths: 8, 9"),
        (SerialIterator(SeenDataset(8), 2), "different batch sizes: 4, 2"),
    ],
)
def test_iterators_must_give_all_devices_the_same_work(other, sentence):
    with pytest.raises(TrackError, match=sentence):
        make_updater(2, iterators=[SerialIterator(SeenDataset(8), BATCH), other])


def only_in_workers(action):
    main = os.getpid()
    return lambda: action() if os.getpid() != main else None


def test_a_worker_that_raises_is_named_with_its_error(updater_of):
    def fail():
        raise ValueError("no such layer")

    with pytest.raises(
        WorkerError, match=r"device 'gpu1' \(virtual GPU 1\) failed with ValueError: no such layer"
    ) as caught:
        updater_of(2, model=Spy(only_in_workers(fail))).update()
    assert "in fail" in caught.value.__notes__[0] and not multiprocessing.active_children()


def test_a_worker_killed_in_its_work_is_named(updater_of):
    with pytest.raises(WorkerError, match="device 'gpu1' .* was killed by signal 9"):
        updater_of(3, model=Spy(only_in_workers(lambda: os.kill(os.getpid(), signal.SIGKILL)))).update()
    assert not multiprocessing.active_children()


def test_a_worker_killed_between_steps_is_named(updater_of):
    updater = updater_of(2)
    updater.update()
    (process,) = multiprocessing.active_children()
    process.kill()
    process.join()
    with pytest.raises(WorkerError, match="device 'gpu1' .* was killed by signal 9"):
        updater.update()


@pytest.mark.thorough
def test_a_worker_that_hangs_is_named_when_time_is_up(updater_of):
    updater = updater_of(2, model=Spy(only_in_workers(signal.pause)))
    updater.step_limit = 0.5
    with pytest.raises(WorkerError, match="device 'gpu1' .* has not finished its step within 0.5 s"):
        updater.update()
    assert not multiprocessing.active_children()


MAIN_THAT_IS_KILLED = """
import handson.chainer, chainer, multiprocessing, numpy, os, sys, time
import chainer.functions as F, chainer.links as L
from handson.chainer.cpu_updater import MultiprocessParallelUpdater
here = os.getpid()
class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.layer = L.Linear(2, 1)
    def forward(self, x):
        if os.getpid() != here and sys.argv[1] == "working":
            os.write(1, b"%d\\n" % os.getpid())  # at once: two workers write here
            while True: time.sleep(1)
        return F.sum(self.layer(x))
data = numpy.ones((8, 2), "f")
its = [chainer.iterators.SerialIterator(data, 2) for _ in range(3)]
updater = MultiprocessParallelUpdater(its, chainer.optimizers.SGD(0.1).setup(Net()), devices={"main": 0, "a": 1, "b": 2})
if sys.argv[1] == "forgetful":
    updater.update()
    sys.exit(0)
if sys.argv[1] == "waiting":
    updater.update()
    for child in multiprocessing.active_children():
        print(child.pid, flush=True)
    time.sleep(60)
updater.update()
"""


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("state", ["waiting", "working"])
def test_workers_end_when_main_is_killed(state, tmp_path):
    main = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", MAIN_THAT_IS_KILLED, state],
        cwd=tmp_path,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        stdout=subprocess.PIPE,
    )
    workers = [int(main.stdout.readline()) for _ in range(2)]
    main.kill()
    main.wait(10)
    until = time.monotonic() + 10
    while not all(map(gone, workers)):
        assert time.monotonic() < until, "workers outlive their main process"
        time.sleep(0.01)
    main.stdout.close()


def test_a_script_that_forgets_to_finalize_ends_all_the_same(tmp_path):
    process = run_to_end(
        [sys.executable, "-W", "ignore", "-c", MAIN_THAT_IS_KILLED, "forgetful"],
        cwd=tmp_path,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        timeout=20,
    )
    assert (process.returncode, process.stderr) == (0, "")
