"""How images are dealt to workers and cut into batches: every one once an epoch, equal steps, an order that can be
repeated."""

import random

import torch
from ranks import image_set
from torch.utils.data import DataLoader

from handson.pytorch.batches import EpochBatches


def cases(count):
    """(shard lengths equal to within one image, batch size) by chance; the chance is the same every time."""
    chance = random.Random(4)
    for _ in range(count):
        workers = chance.randint(1, 9)
        images = chance.randint(workers, chance.choice([20, 200, 2000]))
        yield (
            [images // workers + (rank < images % workers) for rank in range(workers)],
            chance.choice([2, 3, 8, 32, 5000]),
        )


CASES = list(cases(200))


def epoch_of(lengths, batchsize, seed=0, epoch=0):
    """The batches of every worker in one epoch, as indices into its shard."""
    workers = [EpochBatches(lengths, rank, batchsize, seed) for rank in range(len(lengths))]
    for batches in workers:
        batches.set_epoch(epoch)
    return [list(batches) for batches in workers]


def test_every_image_of_a_shard_is_in_one_batch():
    for lengths, batchsize in CASES:
        for length, batches in zip(lengths, epoch_of(lengths, batchsize)):
            assert sorted(index for batch in batches for index in batch) == list(range(length))


def test_all_workers_make_as_many_steps_and_never_with_an_empty_batch():
    for lengths, batchsize in CASES:
        epoch = epoch_of(lengths, batchsize)
        steps = EpochBatches(lengths, 0, batchsize, 0)
        assert {len(batches) for batches in epoch} == {len(steps)}
        assert all(1 <= len(batch) <= batchsize for batches in epoch for batch in batches), (lengths, batchsize)


def test_batches_are_equal_to_within_one_image():
    for lengths, batchsize in CASES:
        for batches in epoch_of(lengths, batchsize):
            assert max(map(len, batches)) - min(map(len, batches)) <= 1


def test_totals_are_what_all_workers_take_in_each_step():
    for lengths, batchsize in CASES:
        taken = [sum(map(len, step)) for step in zip(*epoch_of(lengths, batchsize))]
        for rank in range(len(lengths)):
            assert EpochBatches(lengths, rank, batchsize, 0).totals == taken
        assert sum(taken) == sum(lengths)


def test_the_order_follows_from_seed_and_epoch():
    first = epoch_of([50, 50], 8, seed=1, epoch=2)
    assert epoch_of([50, 50], 8, seed=1, epoch=2) == first
    assert epoch_of([50, 50], 8, seed=1, epoch=3) != first
    assert epoch_of([50, 50], 8, seed=2, epoch=2) != first
    assert epoch_of([50, 50], 8, seed=0, epoch=1) != epoch_of([50, 50], 8, seed=1, epoch=0)


def test_a_dataloader_takes_the_batches_whole():
    dataset = image_set(11)
    batches = EpochBatches([len(dataset)], 0, 4, 0)
    loader = DataLoader(dataset, batch_sampler=batches)
    assert len(loader) == 3
    for (images, labels), indices in zip(loader, batches):
        assert torch.equal(images, dataset.images[indices]) and torch.equal(labels, dataset.labels[indices])
