"""Of a throughput the judge says what is wrong with it."""

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
        (6001.0, 2400.0, "`//` drops what comes after the point"),
        (6000.0, 144000.0, "images per minute"),
        (6000.0, math.nan, "throughput = nan for 6000 images in 2.5 seconds: it should be images / seconds"),
        (math.nan, 2400.0, "throughput = 2400 for nan images in 2.5 seconds: it should be images / seconds"),
        (math.inf, 2400.0, "throughput = 2400 for inf images in 2.5 seconds: it should be images / seconds"),
    ],
)
def test_a_mistake_is_named(images, throughput, sentence):
    assert sentence in judged(images, throughput)
