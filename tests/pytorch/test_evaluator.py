"""The evaluation of the scripts gives means over all images of the test set, whichever rank has which of them."""

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from loading import load
from ranks import SOLUTIONS, PlainNet, image_set, on_ranks
from torch.utils.data import DataLoader, Subset

from handson.pytorch.model import ConvNet

CPU, SIZE = torch.device("cpu"), 16
ALONE = ["single_gpu", "multi_gpu"]  # there, one process evaluates


def seeded(make_model, seed=3):
    """A model whose running statistics are not those of the beginning."""
    torch.manual_seed(seed)
    model = make_model()
    for buffer in model.buffers():
        buffer.copy_(torch.rand(buffer.shape) + 0.5 if buffer.is_floating_point() else torch.tensor(seed))
    return model


@functools.cache
def expected(make_model, samples):
    """Mean loss and accuracy, image by image."""
    dataset, model = image_set(samples), seeded(make_model).eval()
    with torch.no_grad():
        scores = torch.cat([model(image[None]) for image in dataset.images]).double()
    losses = -F.log_softmax(scores, dim=1)[range(samples), dataset.labels]
    right = sum(int(score.argmax()) == int(label) for score, label in zip(scores, dataset.labels))
    return pytest.approx((losses.mean().item(), right / samples), rel=1e-5)


def evaluate(task, model, images, batchsize):
    return load(SOLUTIONS[task]).evaluate(model, DataLoader(images, batchsize), CPU, SIZE)


@pytest.mark.parametrize("task", ALONE)
@pytest.mark.parametrize("make_model", [PlainNet, ConvNet])
@pytest.mark.parametrize("batchsize", [1, 4, 7, 29, 100])
def test_one_process_gives_the_means_over_all_images_whatever_the_batch_size(task, make_model, batchsize):
    assert evaluate(task, seeded(make_model), image_set(29), batchsize) == expected(make_model, 29)


@pytest.mark.parametrize("task", ALONE)
def test_the_model_is_left_as_it_was_and_in_training_mode(task):
    model, seen = seeded(ConvNet), []
    model.register_forward_hook(lambda module, inputs, outputs: seen.append((module.training, outputs.requires_grad)))
    before = copy.deepcopy(model.state_dict())
    evaluate(task, model, image_set(5), 2)
    assert model.training and {module.training for module in model.modules()} == {True}
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert seen == [(False, False)] * 3, "in evaluation, and without gradients"


def evaluated(comm, sizes, batchsize):
    """The evaluation of the multi-node script where each rank has its own number of images, and statistics of its own
    until then."""
    model, first = seeded(ConvNet), sum(sizes[: comm.rank])
    with torch.no_grad():
        for buffer in model.buffers():
            buffer.add_(comm.rank)
    part = Subset(image_set(sum(sizes)), range(first, first + sizes[comm.rank]))
    found = evaluate("multi_node", model, part, batchsize)
    return found, model.training, {name: buffer.numpy().copy() for name, buffer in model.named_buffers()}


@pytest.mark.parametrize("sizes", [[29], [15, 14], [1, 3], [20, 1, 8], [2, 0, 1, 0]], ids=str)
@pytest.mark.parametrize("batchsize", [2, 7])
def test_unequal_parts_give_what_one_process_gives_on_the_whole_test_set(sizes, batchsize):
    """Also where ranks have no image at all; with the running statistics of rank 0, which all ranks then have."""
    statistics = dict(seeded(ConvNet).named_buffers())
    for found, training, buffers in on_ranks(evaluated, len(sizes), sizes, batchsize):
        assert found == expected(ConvNet, sum(sizes))
        assert training
        assert all((buffers[name] == buffer.numpy()).all() for name, buffer in statistics.items())
