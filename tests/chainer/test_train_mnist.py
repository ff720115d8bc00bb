"""ChainerMN's first example: it learns with any number of ranks, and its four steps are timed and drawn."""

import re
import xml.etree.ElementTree as ElementTree

import handson.chainer  # noqa: F401
from handson.chainer import timed_mnist

import numpy
import pytest
from mpi_runs import results
from PIL import Image
from script_runs import SCRIPTS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_it_learns_and_draws_its_steps(ranks, run, tmp_path):
    ended = run("mnist", "-e", "3", "-u", "100", "-o", tmp_path / "out", ranks=ranks)
    assert (ended.status, ended.errors) == (0, "")
    assert (
        f"Num process (COMM_WORLD): {ranks}\n" in ended.out and "Using naive communicator\nNum unit: 100\n" in ended.out
    )
    rows = re.findall(r"^([123])((?: +[\d.]+){5}) *$", ended.out, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "2", "3"] and float(rows[-1][1].split()[3]) > 0.5, (
        "accuracy on the test set"
    )
    assert re.search(r"^Throughput: [\d.]+ \[images/sec\.\] \(4500 / [\d.]+\)$", ended.out, re.MULTILINE)
    updates = -(-3 * -(-1500 // ranks) // 32)
    line = (
        rf"Mean time of a step \({ranks} ranks?, {updates - 1} steps\): forward [\d.]+ ms, backward [\d.]+ ms,"
        r" all-reduce [\d.]+ ms, optimize [\d.]+ ms"
    )
    assert re.search(line, ended.out), ended.out
    assert Image.open(tmp_path / "out/steps.png").width > 1000
    assert re.search(line, (tmp_path / "out/steps.svg").read_text()), "a text for people who cannot see the figure"


def test_it_is_short():
    assert len(SCRIPTS["mnist"].read_text().splitlines()) < 100


def test_what_cannot_work_is_one_sentence(run, tmp_path):
    (tmp_path / "file").touch()
    for options, sentence in (
        (["-g", "0"], "-g names 1 GPU, but there are 2 ranks"),
        (["-o", tmp_path / "file"], "--out: "),
    ):
        ended = run("mnist", *options, ranks=2)
        assert ended.status == 2 and sentence in ended.errors and "Traceback" not in ended.errors


SLOW = """
from handson.chainer.timed_mnist import TimedUpdater
WAITS = dict(forward=0.01, backward=0.02, allreduce=0.03, optimize=0.04)
class SlowBackward(chainer.FunctionNode):
    def forward(self, inputs):
        return inputs
    def backward(self, indexes, gradients):
        time.sleep(WAITS["backward"])
        return gradients
class Model(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.layer = L.Linear(3, 1)
    def forward(self, x):
        time.sleep(WAITS["forward"])
        return SlowBackward().apply((F.sum(self.layer(x)),))[0]
communicator = create_communicator("naive")
mean_grad = communicator.multi_node_mean_grad
def slow_mean_grad(*arguments):
    time.sleep(WAITS["allreduce"])
    mean_grad(*arguments)
communicator.multi_node_mean_grad = slow_mean_grad
class SlowSGD(chainer.optimizers.SGD):
    def update(self, *arguments):
        time.sleep(WAITS["optimize"])
        super().update(*arguments)
def train(kind):
    numpy.random.seed(RANK)
    model = Model()
    optimizer = create_multi_node_optimizer(SlowSGD(0.1), communicator).setup(model)
    data = numpy.random.RandomState(RANK).rand(12, 3).astype("f")
    updater = kind(chainer.iterators.SerialIterator(data, 3, shuffle=False), optimizer)
    for _ in range(4):
        updater.update()
    return updater, model.layer.W.array.tolist()
timed, parameters = train(TimedUpdater)
_, expected = train(chainer.training.updaters.StandardUpdater)
result([timed.steps, parameters == expected])
"""


def test_each_part_of_a_step_is_timed_and_nothing_else_changes():
    """Parts that wait for 10, 20, 30 and 40 ms: none may count another's. The first update is no step."""
    for times, same in results(2, SLOW):
        assert same and numpy.shape(times) == (3, 4)
        assert (numpy.array(times) >= [0.01, 0.02, 0.03, 0.04]).all(), times


@pytest.mark.parametrize("ranks, updates", [(1, 1), (4, 58), (2, 1234)])
def test_the_figure_has_labels_and_a_description(ranks, updates, tmp_path):
    milliseconds = numpy.random.RandomState(0).rand(ranks, updates, 4) * 10
    timed_mnist.draw(milliseconds, tmp_path)
    tree = ElementTree.parse(tmp_path / "steps.svg")
    text = " ".join(tree.getroot().itertext())
    assert "Mean time of a step" in text and f"({ranks} rank" in text
    hatches = [element for element in tree.iter() if element.tag.endswith("pattern")]
    assert len(hatches) >= 3, "told apart in black and white"
    assert (
        Image.open(tmp_path / "steps.png").info["Description"].startswith("Time of the four parts of a training step")
    )


def test_the_means_of_many_steps_are_those_of_all():
    rows = numpy.random.RandomState(0).rand(1234, 4)
    means, ends = timed_mnist._at_most_100(rows)
    assert len(means) <= 100 and ends[0] == 0 and ends[-1] == 1234
    numpy.testing.assert_allclose((means * numpy.diff(ends)[:, None]).sum(0), rows.sum(0))
    few, _ = timed_mnist._at_most_100(rows[:100])
    assert (few == rows[:100]).all()
