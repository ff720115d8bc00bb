"""How messages count and name things."""

import numpy
import pytest

from handson.words import a_kind, there


@pytest.mark.parametrize(
    ("value", "words"), [([], "a list"), (1, "an int"), (numpy.zeros(1), "an ndarray"), (None, "None")]
)
def test_a_kind_has_its_article(value, words):
    assert a_kind(value) == words


def test_one_is_there_and_several_are():
    assert (there(1, "device"), there(2, "device")) == ("there is 1 device", "there are 2 devices")
