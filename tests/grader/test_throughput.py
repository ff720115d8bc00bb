"""The judge reports what is wrong with a throughput."""

import math

import pytest

from grader.checks import training

CASE = {"seconds": 2.5, "lengths": [3000], "epochs": 3, "first_epoch": 1}


def judged(images, throughput):
    """What the judge says of the numbers of one rank: None, or a sentence."""
    return training.images_a_second([{"images": images, "throughput": throughput}], CASE, None)


def test_the_right_throughput_is_right():
    assert judged(6000.0, 2400.0) is None


@pytest.mark.parametrize(
    ("images", "throughput", "sentence"),
    [
        (6000.0, 2.5 / 6000, "seconds per image"),
        (6001.0, 2400.0, "`//` drops the decimals"),
        (6000.0, 144000.0, "images per minute"),
        (6000.0, math.nan, "throughput = nan for 6000 images in 2.5 seconds: `throughput` must be images / seconds"),
        (math.nan, 2400.0, "throughput = 2400 for nan images in 2.5 seconds: `throughput` must be images / seconds"),
        (math.inf, 2400.0, "throughput = 2400 for inf images in 2.5 seconds: `throughput` must be images / seconds"),
    ],
)
def test_a_mistake_is_named(images, throughput, sentence):
    assert sentence in judged(images, throughput)


def test_images_of_a_split_are_the_cause_only_where_the_data_set_is_split():
    case = {"lengths": [3000], "epochs": 3, "first_epoch": 1, "batchsize": 30, "test_images": 9}
    assert (
        training.images_of_all([{"images": 0.0, "whole": True}], case, None)
        == "images = 0, but 6000 went through the network"
    )
    assert "the split leaves some images out" in training.images_of_all(
        [{"images": 6002.0, "whole": True}], case | {"images": 3001}, None
    )


def test_images_that_result_json_does_not_take_are_named():
    case = {"lengths": [3000, 3000], "epochs": 2, "first_epoch": 1, "batchsize": 30, "test_images": 9}
    ranks = [{"images": 6000.0, "whole": whole} for whole in (True, False)]
    assert training.images_of_all(ranks, case, None) is None, "only rank 0 writes them"
    assert training.images_of_all(ranks[::-1], case, None).startswith("`images` is 6000.0, a float")
