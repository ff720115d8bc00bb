"""The evaluator's loss and accuracy are means over all images of the test set, whoever evaluates which of them."""

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from ranks import PlainNet, image_set, on_ranks
from torch.utils.data import DataLoader

from handson.pytorch import extensions
from handson.pytorch.communicator import scatter_dataset
from handson.pytorch.model import ConvNet


def seeded(make_model):
    """A model in float64, so that the order of summation shows nowhere; its running statistics are not those of the
    beginning."""
    torch.manual_seed(3)
    model = make_model().double()
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    return model


def prepare(images, labels):
    return images.double(), labels


@functools.cache
def expected(make_model, samples):
    """Mean loss and accuracy, image by image."""
    dataset, model = image_set(samples), seeded(make_model).eval()
    with torch.no_grad():
        scores = torch.cat([model(image[None].double()) for image in dataset.images])
    losses = -F.log_softmax(scores, dim=1)[range(samples), dataset.labels]
    right = sum(int(score.argmax()) == int(label) for score, label in zip(scores, dataset.labels))
    return {"validation/main/loss": losses.mean().item(), "validation/main/accuracy": right / samples}


def evaluated(comm, make_model, samples, batchsize):
    model = seeded(make_model)
    part = scatter_dataset(image_set(samples) if comm.rank == 0 else None, comm, seed=9)
    evaluator = extensions.Evaluator(DataLoader(part, batchsize), model, prepare, all_ranks=True)
    return evaluator.evaluate(), model.training, len(part), evaluator.seconds


@pytest.mark.parametrize("make_model", [PlainNet, ConvNet])
@pytest.mark.parametrize("batchsize", [1, 4, 7, 29, 100])
def test_alone_it_gives_the_means_over_all_images_whatever_the_batch_size(make_model, batchsize):
    evaluator = extensions.Evaluator(DataLoader(image_set(29), batchsize), seeded(make_model), prepare)
    with torch.no_grad():
        values = evaluator.evaluate()
    assert values == pytest.approx(expected(make_model, 29), rel=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize(("samples", "batchsize"), [(29, 4), (28, 7), (3, 2), (1, 8)])
def test_the_result_does_not_depend_on_the_number_of_ranks(size, samples, batchsize):
    """Also where the images don't divide, and where ranks have none at all."""
    ends = on_ranks(evaluated, size, ConvNet, samples, batchsize)
    for values, training, _, seconds in ends:
        assert values == pytest.approx(expected(ConvNet, samples), rel=1e-9)
        assert training
        assert seconds > 0
    assert sum(length for _, _, length, _ in ends) == samples


def test_the_model_is_left_as_it_was_and_in_training_mode():
    model = seeded(ConvNet)
    before = copy.deepcopy(model.state_dict())
    extensions.Evaluator(DataLoader(image_set(5), 2), model, prepare)()
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_no_gradients_are_computed_in_evaluation():
    """What a manager calls is the evaluator itself, not evaluate()."""
    seen = []
    model = seeded(PlainNet)
    model.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs.requires_grad))
    extensions.Evaluator(DataLoader(image_set(5), 2), model, prepare)()
    assert seen and not any(seen)


def averaged(comm, make_model):
    torch.manual_seed(comm.rank)
    model = make_model()
    for buffer in model.buffers():
        buffer.copy_(torch.rand(buffer.shape) * 8)
    mine = [buffer.clone() for buffer in model.buffers()]
    extensions.AllreducePersistent(model)(None)
    return [buffer.numpy() for buffer in mine], [buffer.numpy() for buffer in model.buffers()]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_running_statistics_are_averaged_over_the_ranks_and_counters_are_not(size):
    ends = on_ranks(averaged, size, ConvNet)
    for index, buffer in enumerate(ConvNet().buffers()):
        own = [mine[index] for mine, _ in ends]
        for rank, (_, after) in enumerate(ends):
            mean = sum(own) / size if buffer.is_floating_point() else own[rank]
            assert after[index] == pytest.approx(mean, rel=1e-6)
