"""The evaluator's result does not depend on batches or ranks; what Chainer's own and scatter_dataset do is on record
here."""

import handson.chainer  # noqa: F401
from handson.chainer.evaluators import Evaluator

import chainer
import numpy
import pytest
from mpi_runs import results

pytestmark = pytest.mark.thorough


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
