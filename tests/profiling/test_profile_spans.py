"""Sets of moments, against the same done millisecond by millisecond."""

import numpy
import pytest

from handson.profiling import spans


def moments(of_spans):
    return {moment for begin, end in of_spans for moment in range(begin, end)}


@pytest.mark.parametrize("seed", range(20))
def test_sets_are_those_of_single_moments(seed):
    random = numpy.random.default_rng(seed)

    def some():
        begins = random.integers(0, 60, random.integers(0, 12))
        return begins, begins + random.integers(0, 9, len(begins))

    one, other = some(), some()
    a, b = spans.union(*one), spans.union(*other)
    mine, theirs = moments(zip(*one)), moments(zip(*other))
    for made, expected in (
        (a, mine),
        (spans.both(a, b), mine & theirs),
        (spans.without(a, b), mine - theirs),
        (spans.either(a, b), mine | theirs),
    ):
        assert moments(made) == expected and spans.length(made) == len(expected)
        assert (made[1:, 0] > made[:-1, 1]).all() or made is not a  # sorted and apart
