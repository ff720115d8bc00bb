"""Measuring steps: every worker in a process of its own, by one clock; and the notebook's process stays as it was."""

import contextlib
import multiprocessing
import os
import sys
import threading
import time

import numpy
import pytest
import torch

from handson.notebook import measure
from handson.notebook.measure import MeasurementFailed, on_gpus
from handson.pytorch.batches import EpochBatches

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def two_workers():
    return measure.steps(workers=2, batchsize=8, size=32, count=5)


def the_rank(device, rank, workers, number):
    return rank, workers, number


def start(device, rank, workers):
    return os.getppid(), "torch._dynamo" in sys.modules


def fails(device, rank, workers):
    raise ValueError("of the test")


def never_ends(device, rank, workers):
    time.sleep(600)


def mean_gradients(device, rank, workers):
    training = measure._Training(device, rank, workers, batchsize=8, size=32, model=None)
    for parameter in training.model.parameters():
        parameter.grad = torch.full_like(parameter, 1.0 + rank)
    training.average_gradients()
    return {parameter.grad.mean().item() for parameter in training.model.parameters()}


def test_answers_come_in_the_order_of_ranks_and_the_caller_is_not_pinned():
    cores = os.sched_getaffinity(0)
    assert on_gpus(the_rank, 7, workers=2) == [(0, 2, 7), (1, 2, 7)]
    assert os.sched_getaffinity(0) == cores and not multiprocessing.active_children()


def test_all_workers_are_forked_from_one_process_that_has_imported_pytorch():
    [(parent, warm)] = on_gpus(start)
    assert warm and parent != os.getpid() and on_gpus(start, workers=2) == [(parent, True)] * 2


def test_a_worker_that_fails_is_named():
    with pytest.raises(MeasurementFailed, match="worker 0 ended without a result"):
        on_gpus(fails)


def test_a_measurement_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr(measure, "LIMIT", 0.1)
    with pytest.raises(MeasurementFailed, match="has made no progress for 0.1 seconds"):
        on_gpus(never_ends)
    assert not multiprocessing.active_children()


def test_a_measurement_that_goes_on_may_take_longer_than_the_limit(monkeypatch):
    monkeypatch.setattr(measure, "LIMIT", 2)
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def work():
        for share in numpy.arange(1, 9) / 10:
            theirs.send((share,))
            time.sleep(0.3)
        theirs.send((1, "measured"))

    thread = threading.Thread(target=work)
    thread.start()
    assert measure._answers([ours]) == ["measured"]
    thread.join()


def test_a_worker_reports_its_progress_up_to_the_end(monkeypatch):
    shares = []
    monkeypatch.setattr(measure, "progress_bar", lambda what: contextlib.nullcontext(shares.append))
    measure.batch_sizes(sizes=(8, 16), size=16, images=16)
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 1 and len(shares) > 8


def test_every_epoch_has_all_images_in_an_order_of_its_own():
    sampler = EpochBatches([40], 0, batchsize=10, seed=0)
    batches = measure.epoch_after_epoch(sampler, sampler)
    first, second = ([image for _ in range(4) for image in next(batches)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(40)) and first != second


def test_the_all_reduce_gives_all_ranks_the_mean():
    assert on_gpus(mean_gradients, workers=2) == [{1.5}, {1.5}]


def test_parts_follow_each_other_and_add_up_to_the_step(two_workers):
    assert two_workers.moments.shape == (2, 5, 7)
    assert (numpy.diff(two_workers.moments) >= 0).all()
    assert sum(two_workers.seconds(1).values()).tolist() == pytest.approx(two_workers.of_steps(1))
    assert two_workers.mean(0) == pytest.approx(sum(two_workers.of_steps(0)) / 5)


def test_moments_count_from_the_begin_of_the_first_step():
    moments = 100.0 + numpy.arange(2 * 3 * 7).reshape(2, 3, 7)
    measured = measure.Steps(moments, 32)
    first, last = measure.PARTS[0], measure.PARTS[-1]
    assert measured.began(first).tolist() == [[0, 21], [7, 28], [14, 35]]
    assert measured.ended(last).tolist() == [[6, 27], [13, 34], [20, 41]]


def test_no_rank_leaves_an_all_reduce_before_the_last_has_come(two_workers):
    """This also holds both ranks to one clock."""
    assert (two_workers.ended("all-reduce") >= two_workers.began("all-reduce").max(axis=1, keepdims=True)).all()


def test_batch_sizes_are_timed_with_about_as_many_images_each():
    found = measure.batch_sizes(sizes=(4, 16), size=32, images=64)
    assert all(45 <= size * len(seconds) <= 64 for size, seconds in found.items()) and set(found) == {4, 16}
    assert all(second > 0 for seconds in found.values() for second in seconds)


def test_an_epoch_is_made_of_its_parts():
    found = measure.epoch(batchsize=64, size=16)
    assert list(found) == ["load", "enlarge", "forward", "backward", "optimize", "evaluate"]
    assert min(found.values()) > 0
