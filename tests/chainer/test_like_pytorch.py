"""Chainer's track is PyTorch's, number for number: the same network, and the same training with one worker or
several."""

import sys
from pathlib import Path

import handson.chainer  # noqa: F401
from handson.chainer import model as chainers
from handson.chainer.cpu_updater import MultiprocessParallelUpdater

import chainer
import chainer.functions as F
import chainer.links as L
import numpy
import pytest
import torch
from chainer.iterators import SerialIterator
from chainer.training.updaters import StandardUpdater
from mpi_runs import results
from same_start import BATCH, RATE, STEPS, arrays, batch, chainer_model, numbers, torch_model, train_ddp

from handson.pytorch import model as torch_models

sys.path.append(str(Path(__file__).resolve().parents[1] / "pytorch"))
from ranks import on_ranks  # noqa: E402

pytestmark = pytest.mark.thorough


def assert_same(mine, its, tolerance):
    """`tolerance`: the largest error, as a part of the largest number of an array."""
    assert mine.keys() == its.keys()
    for name in its:
        scale = numpy.abs(its[name]).max()
        numpy.testing.assert_allclose(mine[name], its[name], rtol=0, atol=tolerance * scale, err_msg=name)


@pytest.mark.parametrize("size", [16, 32, 64, 256])
def test_outputs_losses_gradients_and_statistics_agree(size):
    theirs = torch_model()
    mine = chainer_model(numbers(theirs))
    images, labels = batch(0, 0, size)
    outputs = theirs(torch.from_numpy(images))
    loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(labels).long())
    loss.backward()
    mine.cleargrads()
    my_loss = mine(images, labels)
    my_loss.backward()
    numpy.testing.assert_allclose(mine.y.array, outputs.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert float(my_loss.array) == pytest.approx(loss.item(), rel=1e-5)
    statistics = {name: array for name, array in numbers(theirs).items() if "running" in name}
    assert len(statistics) == 8
    gradients = {name: parameter.grad.numpy() for name, parameter in theirs.named_parameters()}
    # A gradient behind a normalisation over few pixels is a difference of almost equal numbers.
    assert_same(arrays(mine, of=lambda parameter: parameter.grad), gradients | statistics, 1e-3)


@pytest.mark.parametrize("size", [16, 64])
def test_outputs_agree_when_testing(size):
    theirs = torch_model()
    for step in range(3):
        theirs(torch.from_numpy(batch(0, step, size)[0]))
    mine = chainer_model(numbers(theirs))
    images, labels = batch(0, 5, size)
    with chainer.using_config("train", False):
        mine(images, labels)
    numpy.testing.assert_allclose(
        mine.y.array, theirs.eval()(torch.from_numpy(images)).detach().numpy(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("height, width", [(1, 1), (2, 3), (4, 4), (5, 7), (8, 9), (16, 16)])
def test_adaptive_pooling_and_its_gradient_agree(height, width):
    """Where the sizes do not divide, the regions overlap."""
    images = numpy.random.RandomState(0).rand(2, 3, height, width).astype("f")
    weights = numpy.random.RandomState(1).rand(2, 3, 4, 4).astype("f")
    mine, theirs = chainer.Variable(images), torch.from_numpy(images).requires_grad_()
    my_output, output = chainers.adaptive_average_pooling(mine), torch.nn.functional.adaptive_avg_pool2d(theirs, 4)
    numpy.testing.assert_allclose(my_output.array, output.detach().numpy(), rtol=1e-5)
    F.sum(my_output * weights).backward()
    (output * torch.from_numpy(weights)).sum().backward()
    numpy.testing.assert_allclose(mine.grad, theirs.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("samples", [1, 5])
def test_a_convolution_of_one_image_after_the_other_is_chainers(samples, monkeypatch):
    monkeypatch.setattr(chainers, "LARGE", 1)
    mine = chainers.Convolution2D(3, 4, 5, 4, pad=2, nobias=True)
    chainers_own = L.Convolution2D(3, 4, 5, 4, pad=2, nobias=True, initialW=mine.W.array)
    images = numpy.random.RandomState(0).rand(samples, 3, 17, 19).astype("f")
    gradients = []
    for layer in (mine, chainers_own):
        variable = chainer.Variable(images)
        output = layer(variable)
        layer.cleargrads()
        F.sum(output * output).backward()
        gradients.append((output.array, layer.W.grad, variable.grad))
    for one, other in zip(*gradients):
        numpy.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def iterator(worker):
    """All batches of a worker, one after the other."""
    batches = [batch(worker, step) for step in range(STEPS)]
    samples = [(image, label) for images, labels in batches for image, label in zip(images, labels)]
    return SerialIterator(samples, BATCH, shuffle=False)


@pytest.fixture(scope="module")
def after_ddp():
    """number of workers -> the `numbers` of each rank of PyTorch's DistributedDataParallel."""
    return {workers: on_ranks(train_ddp, workers) for workers in (1, 2, 4)}


def test_one_worker_agrees(after_ddp):
    model = chainer_model(numbers(torch_model()))
    updater = StandardUpdater(iterator(0), chainer.optimizers.MomentumSGD(RATE, momentum=0.9).setup(model))
    for _ in range(STEPS):
        updater.update()
    assert_same(arrays(model), after_ddp[1][0], 1e-4)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.filterwarnings("ignore:optimizer.lr")
def test_processes_of_one_machine_agree(workers, after_ddp):
    """The statistics are those of the main device's batches, as they are rank 0's under PyTorch."""
    model = chainer_model(numbers(torch_model()))
    optimizer = chainer.optimizers.MomentumSGD(RATE, momentum=0.9).setup(model)
    updater = MultiprocessParallelUpdater(
        [iterator(worker) for worker in range(workers)], optimizer, devices=list(range(workers))
    )
    try:
        for _ in range(STEPS):
            updater.update()
    finally:
        updater.finalize()
    assert_same(arrays(model), after_ddp[workers][0], 1e-4)


CHAINERMN = """
from same_start import *
weights = dict(numpy.load(sys.argv[1]))
communicator = create_communicator("naive")
model = chainer_model(weights)
optimizer = create_multi_node_optimizer(chainer.optimizers.MomentumSGD(RATE, momentum=0.9), communicator).setup(model)
for step in range(STEPS):
    optimizer.update(model, *batch(RANK, step))
trained = {name: array.tolist() for name, array in arrays(model).items()}
chainermn.extensions.AllreducePersistent(model, communicator)()
result([trained, {name: array.tolist() for name, array in arrays(model).items() if "running" in name}])
"""


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_mpi_ranks_agree(workers, tmp_path):
    """Each rank has statistics of its own until AllreducePersistent takes their mean."""
    numpy.savez(tmp_path / "weights.npz", **numbers(torch_model()))
    theirs = on_ranks(train_ddp, workers, True)
    means = {name: numpy.mean([one[name] for one in theirs], axis=0) for name in theirs[0] if "running" in name}
    for (mine, mine_together), its in zip(results(workers, CHAINERMN, tmp_path / "weights.npz"), theirs):
        assert_same({name: numpy.array(values) for name, values in mine.items()}, its, 1e-4)
        assert_same({name: numpy.array(values) for name, values in mine_together.items()}, means, 1e-4)


def test_the_wide_network_agrees():
    torch.manual_seed(0)
    theirs, mine = torch_models.WideNet(10), L.Classifier(chainers.WideNet(10))
    first, _, second, _, hidden, _, last = mine.predictor
    blocks, layers = (theirs[0], theirs[2]), (theirs[5], theirs[7])
    for (convolution, normalization, _), block in zip((first, second), blocks):
        convolution.W.array[...], normalization.gamma.array[...] = block[0].weight.detach(), block[1].weight.detach()
    images, labels = batch(0, 0, 32)
    mine(images, labels)  # Chainer draws the parameters of dense layers when it has seen an image
    for linear, layer in zip((hidden, last), layers):
        linear.W.array[...], linear.b.array[...] = layer.weight.detach(), layer.bias.detach()
    mine(images, labels)
    numpy.testing.assert_allclose(mine.y.array, theirs(torch.from_numpy(images)).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert sum(parameter.size for parameter in mine.params()) == sum(
        parameter.numel() for parameter in theirs.parameters()
    )
