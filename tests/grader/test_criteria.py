"""A sentence that compares two numbers shows how they differ."""

import time

import numpy
import pytest

from grader.checks import criteria, training
from grader.units.communication import cntk, hooks
from grader.units.frameworks import replicas, translated
from grader.units.model_parallel import pipeline
from grader.units.multi_node import from_scratch
from grader.units.profiling import profiling_pytorch as uneven_work


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (2.5, 0.125, ("2.5", "0.125")),
        (2.2071234, 2.2071299, ("2.20712", "2.20713")),
        (0.1, 0.1, ("0.1", "0.1")),
        (float("nan"), 1.0, ("nan", "1")),
    ],
    ids=["few digits", "as many as it needs", "equal", "no number"],
)
def test_two_numbers_are_shown_with_the_digits_that_tell_them_apart(one, other, shown):
    assert criteria.distinct_digits(one, other) == shown


def test_of_two_lists_the_numbers_that_differ_most_choose_the_digits():
    assert criteria.digits_that_differ([[1.0, 2.00001], [1.0, 2.0]], [1.0, 2.0]) == 6
    assert criteria.digits_that_differ([[3.0, 2.0]], [3.0, 2.0]) == 4


def a_little_more(number):
    return number * (1 + 1e-6)


def loss_of_pipeline():
    right = {"gradients": {"right": numpy.ones(2)}, "loss": 0.2869}
    return pipeline.as_the_whole_batch(
        [{"gradients": numpy.ones(2), "loss": a_little_more(0.2869)}], {"stages": 1}, [right]
    )


def loss_of_the_second_step():
    case = {"seed": 3, "replicas": 2, "steps": 2, "total": 7}
    first, second = replicas.trained(case, replicas.kept(replicas.scaled_mean(1)))[1]
    return translated.mean_loss([{"losses": [first, a_little_more(second)]}], case, None)


def gradients_of_a_hook():
    right, found = numpy.array([[0.2869, 1.0]]), numpy.array([[0.2869 + 2e-5, 1.0]])
    return hooks.as_simulated("the mean")([{"steps": list(found), "misused": ""}], {}, {"right": right})


def throughput_of_a_run():
    case = {"lengths": [100], "seconds": 3.0, "epochs": 1, "first_epoch": 0}
    return training.images_a_second([{"images": 100, "throughput": 100 / 3 * (1 + 2e-5), "whole": True}], case, None)


@pytest.mark.parametrize(
    ("judge", "shown"),
    [
        (loss_of_pipeline, ["0.2869003", "0.2869"]),
        (loss_of_the_second_step, ["step 2 is 1.956667", "is 1.956665"]),
        (gradients_of_a_hook, ["0.28692", "0.2869"]),
        (throughput_of_a_run, ["33.334 for", "images / seconds, 33.333"]),
    ],
)
def test_a_sentence_on_numbers_that_are_nearly_equal_shows_the_difference(judge, shown):
    sentence = judge()
    assert all(text in sentence for text in shown), sentence


def test_a_hundred_thousand_steps_are_judged_in_a_moment():
    case = {"images": 2, "epochs": 1}
    seen = [{"batches": [[1]] * 200_000}]
    start = time.process_time()
    assert "image 0 is used 0 times" in uneven_work.every_image_once(seen, case, None)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("judge", "case", "says"),
    [
        (cntk.once_each, {"samples": 2, "max_samples": 2}, "none of the source's"),
        (from_scratch.every_image_once, {"images": 2, "EPOCHS": 1}, "not data.load's training images"),
    ],
    ids=["train_cntk.py", "from_scratch.py"],
)
def test_numbers_that_no_image_has_are_not_counted(judge, case, says):
    for number in (2**60, -1):
        steps = [[0], [number]]
        assert says in judge([{"steps": steps, "batches": steps}], case, None)
