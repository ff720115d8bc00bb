"""The numerical oracle: W workers with batches of b do what one process does with the batches of all of them put
together."""

import functools
import math
import os

import numpy
import pytest
import torch
import torch.nn.functional as F
from ranks import PlainNet, image_set, on_ranks, parse, train

from handson.pytorch.model import ConvNet

EPOCHS = 2
# (workers, images, batch size): data that does and does not divide, so that DistributedSampler repeats images; a batch
# larger than a shard; a single step an epoch
CASES = [(1, 61, 8), (2, 61, 8), (3, 60, 8), (4, 61, 3), (3, 61, 100), (4, 9, 2)]
QUICK = CASES[1], CASES[5]
TASKS = ["multi_gpu", "multi_node"]


@functools.cache
def run(task, model, case, out):
    """The Trainings of all ranks; and their options, for what follows from these."""
    workers, images, batchsize = case
    # smaller ones leave 1 x 1 pixel, whose statistics over 2 images blow up every rounding error
    size = 64 if model is ConvNet else 16
    words = ["-b", batchsize, "-e", EPOCHS, "--size", size, "--seed", images + workers, "--lr", 0.01, "-o", out]
    trainings = on_ranks(
        train, workers, task, words, image_set(images, size=size), image_set(13, seed=1, size=size), model, 7 * workers
    )
    return trainings, parse(task, words, workers)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("oracle")


@pytest.fixture(params=TASKS)
def task(request):
    return request.param


@pytest.fixture(
    params=[pytest.param(case, marks=() if case in QUICK else pytest.mark.thorough) for case in CASES],
    ids=lambda case: "{} workers, {} images, batch {}".format(*case),
)
def case(request):
    return request.param


def by_one_process(trainings, args, images, make_model, loss_of):
    """Plain SGD from rank 0's weights. loss_of(model, parts): the loss of one step, of whose images and labels each
    worker has a part.

    Returns the model, and each worker's own buffers (running statistics). DistributedDataParallel broadcasts rank 0's
    before each forward pass in training.
    """
    labels, model = image_set(images, size=args.size).labels, make_model(10)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in trainings[0].initial.items()})
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=args.lr, momentum=0.9)
    buffers = [{name: buffer.clone() for name, buffer in model.named_buffers()} for _ in trainings]
    for step in range(len(trainings[0].batches)):
        for own in buffers[1:]:
            own.update({name: buffer.clone() for name, buffer in buffers[0].items()})
        parts = [
            (torch.from_numpy(training.batches[step]), labels[training.samples[step]], buffers[rank])
            for rank, training in enumerate(trainings)
        ]
        optimizer.zero_grad()
        loss_of(model, parts).backward()
        optimizer.step()
    return model, buffers


@functools.cache
def normalised_in_one_process(task, case, out):
    """What `by_one_process` returns for a network with batch normalisation."""
    trainings, args = run(task, ConvNet, case, out)
    return by_one_process(trainings, args, case[1], ConvNet, normalised_by_worker)


def one_batch(model, parts):
    """The mean over the images of all workers, which never were apart."""
    return F.cross_entropy(
        model(torch.cat([images for images, _, _ in parts])), torch.cat([labels for _, labels, _ in parts])
    )


def normalised_by_worker(model, parts):
    """The mean of the workers' mean losses, each worker's images normalised with the statistics of its own batch."""
    parameters = dict(model.named_parameters())
    losses = [
        F.cross_entropy(torch.func.functional_call(model, (parameters, own), images), labels)
        for images, labels, own in parts
    ]
    return sum(losses) / len(losses)


def difference(mine, expected):
    """Relative, in the Euclidean norm."""
    return numpy.linalg.norm(mine - expected) / max(numpy.linalg.norm(expected), 1e-30)


@pytest.fixture(autouse=True)
def one_thread():
    """As each worker has; float32 sums depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_workers_without_batch_normalisation_equal_one_big_batch(task, case, out):
    trainings, args = run(task, PlainNet, case, out)
    model, _ = by_one_process(trainings, args, case[1], PlainNet, one_batch)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        assert difference(trainings[0].final[name], parameter.detach().numpy()) < 1e-5, name


def test_workers_with_batch_normalisation_equal_one_step_over_their_separately_normalised_parts(task, case, out):
    trainings, _ = run(task, ConvNet, case, out)
    model, _ = normalised_in_one_process(task, case, out)
    for name, parameter in model.named_parameters():
        assert difference(trainings[0].final[name], parameter.detach().numpy()) < 1e-5, name


def test_running_statistics_are_those_of_rank_0(task, case, out):
    """Each worker goes on from rank 0's in each step. On several nodes, evaluation broadcasts them once more."""
    trainings, _ = run(task, ConvNet, case, out)
    _, buffers = normalised_in_one_process(task, case, out)
    assert buffers[0]
    for rank, training in enumerate(trainings):
        for name, buffer in buffers[0 if task == "multi_node" else rank].items():
            assert difference(training.final[name], buffer.numpy()) < 1e-5, (rank, name)


@pytest.mark.parametrize("model", [PlainNet, ConvNet])
def test_all_workers_end_with_the_same_parameters(task, case, model, out):
    """Bit for bit: gloo gives every rank the same sums, and nothing else may come between."""
    trainings, _ = run(task, model, case, out)
    for name, _ in model(10).named_parameters(remove_duplicate=False):
        for training in trainings[1:]:
            assert numpy.array_equal(training.final[name], trainings[0].final[name]), name


def test_every_epoch_has_each_image_and_repeats_the_first_ones_of_its_order_where_they_do_not_divide(task, case, out):
    """The order is that of DistributedSampler: rank r has images r, r + W, r + 2 W, ... of it."""
    workers, images, batchsize = case
    trainings, args = run(task, PlainNet, case, out)
    length = math.ceil(images / workers)
    steps, orders = math.ceil(length / batchsize), []
    for epoch in range(EPOCHS):
        taken = [sum(training.samples[epoch * steps : (epoch + 1) * steps], []) for training in trainings]
        assert [len(of_rank) for of_rank in taken] == [length] * workers
        order = [image for one_of_each in zip(*taken) for image in one_of_each]
        assert sorted(order[:images]) == list(range(images))
        assert order[images:] == order[: length * workers - images]
        orders.append(order)
    assert orders[0] != orders[1], "set_epoch"
    drawn = torch.randperm(images, generator=torch.Generator().manual_seed(args.seed))
    assert orders[0][:images] == drawn.tolist(), "--seed"


def test_one_gpu_is_the_case_of_one_worker(out):
    """The three scripts are the same training: with one worker, the first and the others agree."""
    words = ["-b", 8, "-e", EPOCHS, "--size", 16, "-o", out]
    [single] = on_ranks(train, 1, "single_gpu", words, image_set(61), image_set(13, seed=1), PlainNet, 5)
    model, _ = by_one_process([single], parse("single_gpu", words, 1), 61, PlainNet, one_batch)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        assert difference(single.final[name], parameter.detach().numpy()) < 1e-5, name


@pytest.mark.thorough
def test_each_worker_has_one_thread_on_the_core_of_its_gpu(task, out):
    trainings, _ = run(task, PlainNet, (4, 61, 3), out)
    cores = sorted(os.sched_getaffinity(0))
    assert [training.cores for training in trainings] == [{cores[rank % len(cores)]} for rank in range(4)]
    assert {training.threads for training in trainings} == {1}
