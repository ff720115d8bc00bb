"""Compare observations with the right values, and describe the difference in a sentence. This module needs only NumPy,
and runs no student code."""

import numpy

from handson.language import marked
from handson.words import decimal

TOLERANCE = 1e-8  # relative; most probes compute in double precision
SINGLE = 1e-5  # relative tolerance for values in single precision
FEW = 20  # samples
# names in an oracle's dictionary that are not descriptions of misconceptions
NOT_SENTENCES = "right", "second", "start", "losses", "classes"


def close(one, other, tolerance=TOLERANCE):
    """Return whether two arrays are equal up to rounding. `tolerance` is relative to the largest number of `other`, if
    that is above 1."""
    one, other = numpy.asarray(one, dtype="float64"), numpy.asarray(other, dtype="float64")
    if one.shape != other.shape or not (numpy.isfinite(one).all() and numpy.isfinite(other).all()):
        return False
    return bool(numpy.abs(one - other).max(initial=0) <= tolerance * max(1.0, numpy.abs(other).max(initial=0)))


def explained(found, right, misconceptions, tolerance=TOLERANCE):
    """Return None if `found` is `right`; otherwise the sentence of the first misconception that leads to `found`, or ""
    if none does.

    misconceptions: sentence -> the values that this misconception leads to.
    """
    if close(found, right, tolerance):
        return None
    return next((sentence for sentence, values in misconceptions.items() if close(found, values, tolerance)), "")


def explained_by(found, expected, tolerance=TOLERANCE):
    """Return the result of `explained` for an oracle's dictionary. It contains "right", the misconceptions, and other
    entries, which are ignored (NOT_SENTENCES)."""
    return explained(
        found,
        expected["right"],
        {sentence: values for sentence, values in expected.items() if sentence not in NOT_SENTENCES},
        tolerance,
    )


def images_counted(images, right, misconceptions, who=""):
    """Return None if a run reports `right`, the number of images that it trained on; otherwise a sentence on its
    number."""
    problem = explained(images, right, misconceptions)
    return (
        problem
        if problem is None
        else with_reason(
            f"{who}images = {distinct_digits(images, right, 6)[0]}, but {right} went through the network", problem
        )
    )


def on_each_rank(judge):
    """Convert a judge of a single rank to a judge that applies it to each rank."""
    return lambda seen, case, expected: next(filter(None, (judge([of_rank], case, expected) for of_rank in seen)), None)


def with_reason(sentence, problem):
    """Return `sentence`, followed by the explanation `problem` if that is not empty."""
    return f"{sentence}: {problem}" if problem else sentence


def equal_on_all_ranks(values, what, tolerance=TOLERANCE):
    """Return None, or a sentence that names the ranks whose `what` differs from rank 0's, or is infinite or NaN.

    what: plural, with its article, such as "the parameters after step 1".
    """
    if strange := [rank for rank, value in enumerate(values) if not numpy.isfinite(value).all()]:
        return (
            f"{what} are infinite or NaN on {ranks(strange)}: is something divided by 0, or is the learning rate"
            " too high?"
        )
    others = [rank for rank, value in enumerate(values) if not close(value, values[0], tolerance)]
    return f"{what} differ on {ranks(others)} from those on rank 0: they must be equal on all ranks" if others else None


def partition(parts, samples):
    """Return None if each of `samples` samples is in exactly one of the ranks' parts, otherwise a sentence."""
    numbers = numpy.concatenate([numpy.asarray(part, dtype="int64") for part in parts])
    if strange := [number for number in numbers if not 0 <= number < samples]:
        return f"there is no image {strange[0]}: images are numbered from 0 to {samples - 1}"
    counts = numpy.bincount(numbers, minlength=samples)
    if len(parts) > 1 and all(sorted(part) == sorted(parts[0]) for part in parts) and counts.max() == len(parts):
        return f"all {len(parts)} ranks have the same {len(parts[0])} images: give each image to one rank only"
    for rank, part in enumerate(parts):
        if (
            len(part) > 1
            and (twin := next((other for other in range(rank) if sorted(parts[other]) == sorted(part)), None))
            is not None
        ):
            return f"ranks {twin} and {rank} have the same {len(part)} images: choose each rank's own part by comm.rank"
    missing, repeated = list(numpy.flatnonzero(counts == 0)), list(numpy.flatnonzero(counts > 1))
    holders = ranks([rank for rank, part in enumerate(parts) if repeated[0] in part]) if repeated else ""
    drawn = next((number for part in parts for number in part if list(part).count(number) > 1), None)
    lost = (
        f"{len(missing)} of {samples} images {'is' if len(missing) == 1 else 'are'} on no rank ({first_few(missing)})"
    )
    if missing and drawn is not None:
        return (
            f"{lost}, and one rank has image {drawn} twice: torch.randint can draw a number twice; use a permutation"
            " (torch.randperm), which has each number once"
        )
    if missing and repeated and len(parts) > 1:
        return (
            f"{lost}, and {len(repeated)} are used more than once (image {repeated[0]} by {holders}): do all ranks"
            " split the same order, shuffled with the same seed?"
        )
    if missing and len(missing) < len(parts):  # no more than an uneven division can leave out
        return f"{lost}: do not drop the remainder if the number of ranks does not divide the number of images"
    if missing:
        return f"{lost}: give each image to one rank"
    return f"{len(repeated)} images are used more than once (image {repeated[0]} by {holders})" if repeated else None


def at_random(parts):
    """Return None if the parts are random sample numbers; otherwise a sentence: they are consecutive, or at a constant
    distance."""
    steps = {int(step) for part in parts for step in numpy.diff(part)}
    if sum(map(len, parts)) >= 8 and len(steps) == 1:
        how = "split in order" if steps == {1} else f"each rank takes one image of every {steps.pop()}"
        return f"the parts are not random ({how}): if the data set is sorted by class, each rank sees different classes"
    return None


def dealt_at_random(parts, other=()):
    """Like `at_random`, but ignore the order of the samples within a part.

    Returns None for few samples, because they may be in order by chance, and for parts that are all equal. other: the
    parts in a run with another seed.
    """
    if len(parts) < 2 or sum(map(len, parts)) < FEW or all(sorted(part) == sorted(parts[0]) for part in parts):
        return None
    if all(max(part) - min(part) < len(part) for part in parts):
        return (
            f"each part is a contiguous range of the data set (the first one ends at image {max(parts[0])}): if the"
            " data set is sorted by class, each worker sees different classes"
        )
    if problem := at_random(parts):
        return problem
    if nearly_in_turn(parts) and nearly_in_turn(other):
        return (
            "nearly all images are distributed in the order of the data set: if it is sorted by class, each rank sees"
            " different classes"
        )
    return None


def nearly_in_turn(parts):
    """Return whether nearly all samples are on the same rank as the next sample, or as the sample at a distance of the
    number of ranks.

    Then the data set was split in order, or distributed in turn, even if the split starts elsewhere or a few samples
    were exchanged. Random samples can look like this once, but hardly ever twice.
    """
    rank = {sample: number for number, part in enumerate(parts) for sample in part}
    if len(rank) < FEW or len(parts) < 2:
        return False
    return any(
        numpy.mean([rank.get(sample + apart) == rank[sample] for sample in sorted(rank)[:-apart]]) >= 0.85
        for apart in (1, len(parts))
    )


def in_sequence(order):
    """Return whether nearly all of ten or more numbers follow each other at a constant distance. Random numbers hardly
    ever do so in several epochs."""
    steps = numpy.diff(order)
    return len(order) >= 10 and numpy.unique(steps, return_counts=True)[1].max() >= 0.75 * len(steps)


def distinct_digits(one, other, least=4):
    """Format two numbers with at least `least` digits, and with more digits if they would look the same."""
    digits = digits_that_differ(one, other, least)
    return decimal(one, digits), decimal(other, digits)


def digits_that_differ(one, other, least=4):
    """Return how many digits show that two numbers differ, or `least` if they are equal. For arrays, the two entries
    that differ most are compared."""
    one, other = numpy.broadcast_arrays(numpy.asarray(one, dtype="float64"), other)
    place = numpy.unravel_index(numpy.abs(one - other).argmax(), one.shape)
    one, other = float(one[place]), float(other[place])
    return next((more for more in range(least, 18) if decimal(one, more) != decimal(other, more)), least)


def times(found, right):
    """Return the factor by which `found` is a multiple of `right`, or None if there is no such factor or it is 1."""
    found, right = numpy.asarray(found, dtype="float64").ravel(), numpy.asarray(right, dtype="float64").ravel()
    if found.shape != right.shape or not numpy.isfinite(found).all() or not right.any():
        return None
    factor = found @ right / (right @ right)
    return factor if factor and abs(factor - 1) > SINGLE and close(found, factor * right, SINGLE) else None


def as_large(factor, what="all gradients"):
    """Return a sentence on numbers that are a multiple of the right ones: "all gradients are 0.333 times as large as
    they should be"."""
    return f"{what} are {distinct_digits(factor, 1, 3)[0]} times as large as they should be"


def with_factor(sentence, found, right, what="its numbers"):
    """Return `sentence`, followed by the factor if `found` is a multiple of `right`."""
    factor = times(found, right)
    return with_reason(sentence, as_large(factor, what) if factor else "")


def shares(found, parts):
    """Return how often each rank's numbers are contained in `found`, if `found` is their sum with weights that are
    multiples of 1 / N; otherwise None.

    parts: for each of N ranks, an array of the shape of `found`. With fewer than N numbers the weights are
    undetermined.
    """
    found = numpy.asarray(found, dtype="float64").ravel()
    columns = numpy.stack([numpy.asarray(part, dtype="float64").ravel() for part in parts], axis=1)
    if found.size != len(columns) or found.size < len(parts) or not numpy.isfinite(found).all():
        return None
    times = numpy.rint(numpy.linalg.lstsq(columns, found, rcond=None)[0] * len(parts)) / len(parts)
    return times.tolist() if close(columns @ times, found, SINGLE) else None


def sum_of(found, parts):
    """Return `found` as a sum of multiples of some parts, such as "2 * `mean` - block.start", or None if it is not such
    a sum. parts: name -> an array of the shape of `found`."""
    found = numpy.asarray(found, dtype="float64").ravel()
    columns = numpy.stack([numpy.asarray(part, dtype="float64").ravel() for part in parts.values()], axis=1)
    if found.size != len(columns) or found.size <= len(parts) or not numpy.isfinite(found).all():
        return None
    factors = numpy.linalg.lstsq(columns, found, rcond=None)[0]
    if not close(columns @ factors, found, SINGLE):
        return None
    said = ""
    for name, factor in zip(parts, factors):
        if abs(factor) > SINGLE:
            sign = (" - " if said else "-") if factor < 0 else " + " * bool(said)
            said += sign + ("" if close(abs(factor), 1, SINGLE) else f"{abs(factor):.3g} * ") + name
    return said or "0"


def words_of_shares(times, rank):
    """Describe the result of `shares` for a rank's tensor, such as: "its own numbers twice, and the numbers of rank 2
    not at all"."""
    if len(times) > 1 and all(close(one, 1 / len(times)) for one in times):
        return "the mean of all ranks' numbers"
    of_times = {}
    for other, one in enumerate(times):
        of_times.setdefault(one, []).append(other)
    return ", and ".join(
        _own_numbers(one) if others == [rank] else _numbers_of(ranks(others), one)
        for one, others in sorted(of_times.items(), reverse=True)
    )


# whole sentences, since a translation has another order of words
def _own_numbers(times):
    how = {0: "its own numbers not at all", 1: "its own numbers once", 2: "its own numbers twice"}
    return how.get(times, f"its own numbers {times:.3g} times")


def _numbers_of(whom, times):
    how = {0: f"the numbers of {whom} not at all", 1: f"the numbers of {whom} once", 2: f"the numbers of {whom} twice"}
    return how.get(times, f"the numbers of {whom} {times:.3g} times")


def first_few(numbers, count=4):
    """Return a few of `numbers` as text, for a sentence."""
    shown = ", ".join(str(number) for number in numbers[:count])
    return shown + ", ..." * (len(numbers) > count)


def ranks(numbers):
    if len(numbers) == 1:
        return marked(f"rank {numbers[0]}")
    listed = ", ".join(map(str, numbers))
    return marked(f"ranks {listed}")
