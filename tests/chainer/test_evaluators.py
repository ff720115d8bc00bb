"""The evaluator's result does not depend on batches or ranks; what Chainer's own and scatter_dataset do is on record
here."""

import handson.chainer  # noqa: F401
from handson.chainer.evaluators import Evaluator

import chainer
import numpy
import pytest
from chainer.training import extensions
from mpi_runs import results

pytestmark = pytest.mark.slow


class Mean(chainer.Chain):
    """Reports the mean of its input."""

    def forward(self, x):
        chainer.report({"value": x.mean(), "double": chainer.Variable(numpy.array(2 * x.mean()))}, self)


def evaluate(evaluator, samples, batchsize):
    iterator = chainer.iterators.SerialIterator(numpy.asarray(samples, "d"), batchsize, repeat=False, shuffle=False)
    return evaluator(iterator, Mean())()


@pytest.mark.parametrize("batchsize", [1, 3, 4, 7, 20])
def test_every_sample_weighs_the_same(batchsize):
    samples = [0, 0, 0, 0, 0, 0, 7]
    assert evaluate(Evaluator, samples, batchsize) == {"main/value": 1, "main/double": 2}


def test_chainers_own_gives_a_small_last_batch_too_much_weight():
    assert evaluate(extensions.Evaluator, [0, 0, 0, 0, 0, 0, 7], 6)["main/value"] == 3.5


def test_it_is_an_extension_like_chainers():
    assert evaluate(Evaluator, [1, 2], 2).keys() == evaluate(extensions.Evaluator, [1, 2], 2).keys()
    assert Evaluator.default_name == "validation" and Evaluator.trigger == (1, "epoch")


MULTI_NODE = """
from handson.chainer.evaluators import Evaluator
from chainer.training import extensions
class Mean(chainer.Chain):
    def forward(self, x):
        chainer.report({"value": x.mean()}, self)
communicator = create_communicator("naive")
def evaluate(number, kind):
    samples = numpy.arange(float(number)) ** 2 if RANK == 0 else None
    samples = chainermn.scatter_dataset(samples, communicator, force_equal_length=False)
    iterator = chainer.iterators.SerialIterator(samples, 4, repeat=False, shuffle=False)
    evaluator = chainermn.create_multi_node_evaluator(kind(iterator, Mean()), communicator)
    return [evaluator()["main/value"] for _ in range(2)]
result([evaluate(number, Evaluator) for number in (2, 11, 12)] + evaluate(11, extensions.Evaluator))
"""


def test_the_result_is_the_same_for_any_number_of_ranks():
    """Also where the test set does not divide, and where a rank has nothing. Chainer's own result changes with them."""
    means = [float(numpy.mean(numpy.arange(samples) ** 2)) for samples in (2, 11, 12)]
    chainers = set()
    for ranks in (1, 2, 3):
        for *exact, one, another in results(ranks, MULTI_NODE):
            assert exact == [[pytest.approx(mean, rel=1e-15)] * 2 for mean in means] and one == another
            chainers.add(round(one, 6))
    assert len(chainers) > 1


SCATTER = """
communicator = create_communicator("naive")
def part(number, **options):
    return list(chainermn.scatter_dataset(list(range(number)), communicator, shuffle=True, seed=0, **options))
result([part(10), part(10, force_equal_length=False), part(12)])
"""


def test_scatter_dataset_duplicates_samples_unless_told_not_to():
    """Training needs equal lengths, or ranks make different numbers of steps; evaluation needs every sample once."""
    default, uneven, divides = zip(*results(3, SCATTER))
    assert [len(part) for part in default] == [4, 4, 4] and set(sum(default, [])) == set(range(10))
    assert [len(part) for part in uneven] == [4, 3, 3] and sorted(sum(uneven, [])) == list(range(10))
    assert [len(part) for part in divides] == [4, 4, 4] and sorted(sum(divides, [])) == list(range(12))
