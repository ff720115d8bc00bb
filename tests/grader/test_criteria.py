"""A sentence that compares two numbers shows how they differ."""

import numpy
import pytest

from grader.checks import criteria, training
from grader.probes.exact import numbers
from grader.units.communication import all_reduce, half_and_late, hooks, local_sgd


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (2.5, 0.125, ("2.5", "0.125")),
        (2.2071234, 2.2071299, ("2.20712", "2.20713")),
        (0.1, 0.1, ("0.1", "0.1")),
        (11956, 11960.3, ("11956", "11960")),
        (1234567.0, 1234567.4, ("1234567", "1234567.4")),
        (float("nan"), 1.0, ("nan", "1")),
    ],
    ids=["few digits", "as many as it needs", "equal", "no exponent", "one more digit", "no number"],
)
def test_two_numbers_are_shown_with_the_digits_that_tell_them_apart(one, other, shown):
    assert criteria.distinct_digits(one, other) == shown


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([1 / 3, 1 / 3, 1 / 3], "the mean of all ranks' numbers"),
        ([1, 2, 0], "its own numbers twice, and the numbers of rank 0 once, and the numbers of rank 2 not at all"),
        ([0, 4, 0], "its own numbers 4 times, and the numbers of ranks 0, 2 not at all"),
        ([1.1, 1, 1], None),
    ],
)
def test_whose_numbers_are_in_a_sum_is_seen_from_the_sum(times, words):
    parts = numpy.random.default_rng(0).normal(size=(3, 5))
    found = criteria.shares(numpy.dot(times, parts), parts)
    assert (found and criteria.words_of_shares(found, 1)) == words
    assert criteria.shares(parts[0, :2], parts[:, :2]) is None, "two numbers do not show whose they are"


@pytest.mark.parametrize(
    ("found", "times"),
    [
        ([2.0, 4.0, 6.0], 2),
        ([-1.0, -2.0, -3.0], -1),
        ([1.0, 2.0, 3.0], None),
        ([2.0, 4.0, 7.0], None),
        ([0, 0, 0], None),
    ],
)
def test_numbers_that_are_so_many_times_the_right_ones_are_recognised(found, times):
    assert criteria.times(found, [1.0, 2.0, 3.0]) == (times and pytest.approx(times))


@pytest.mark.parametrize(("parts", "remainder"), [([[0, 1, 2], [3, 4, 5]], True), ([[0], [3]], False)])
def test_a_remainder_is_blamed_only_where_no_more_is_missing(parts, remainder):
    problem = criteria.partition(parts, 7)
    assert "on no rank" in problem and ("does not divide" in problem) == remainder


def gradients_of_a_hook():
    right, found = numpy.array([[0.2869, 1.0]]), numpy.array([[0.2869 + 2e-5, 1.0]])
    return hooks.as_simulated("the mean")([{"steps": list(found), "misused": ""}], {}, {"right": right})


def throughput_of_a_run():
    case = {"lengths": [100], "seconds": 3.0, "epochs": 1, "first_epoch": 0}
    return training.images_a_second([{"images": 100, "throughput": 100 / 3 * (1 + 2e-5), "whole": True}], case, None)


@pytest.mark.parametrize(
    ("judge", "shown"),
    [(gradients_of_a_hook, ["0.28692", "0.2869"]), (throughput_of_a_run, ["33.334 for", "images / seconds, 33.333"])],
)
def test_a_sentence_on_numbers_that_are_nearly_equal_shows_the_difference(judge, shown):
    sentence = judge()
    assert all(text in sentence for text in shown), sentence


def test_a_sum_of_known_parts_is_told_in_their_words():
    parts = dict(zip(("`mean`", "the start", "the velocity"), numpy.random.default_rng(0).normal(size=(3, 7))))
    mean, start, velocity = parts.values()
    assert criteria.sum_of(2 * mean - start, parts) == "2 * `mean` - the start"
    assert criteria.sum_of(-0.4 * velocity + start, parts) == "the start - 0.4 * the velocity"
    assert criteria.sum_of(mean * start, parts) is None


def after_a_block(gap, found, velocity=None):
    """What is said of two ranks whose parameters were 1, 2, ... before a block, and at its end those of `mine`;
    found(mine of both, start): with what rank 0 goes on; velocity(the
    step): block.velocity after it, by default the right one."""
    start, mine = numpy.arange(1.0, 7), numpy.random.default_rng(0).normal(size=(2, 6))
    right = mine.mean(axis=0)
    seen = [{"mine": [own], "blocks": [right]} for own in mine]
    seen[0]["blocks"] = [found(mine, start)]
    for of_rank in seen:
        of_rank["velocities"] = [right - start if velocity is None else velocity(right - start)]
    case = {"gap": gap, "blocks": 1, "ranks": 2, "momentum": 0.4}
    return local_sgd.as_simulated(seen, case, {"right": [[right], [right]], "start": start})


def test_what_a_rank_of_local_sgd_goes_on_with_is_named_by_its_parts():
    assert "its own numbers once, and the numbers of rank 1 0.5 times" in after_a_block(
        "mean", lambda mine, start: mine[0] + mine[1] / 2
    )
    assert "block.start of rank 0 is `mean` + 0.5 * the previous start; it should be" in after_a_block(
        "block_momentum", lambda mine, start: mine.mean(axis=0) + start / 2
    )
    assert "differ from the right ones" in after_a_block("mean", lambda mine, start: numpy.sin(mine[0]))
    assert after_a_block("mean", lambda mine, start: mine.mean(axis=0)) is None


@pytest.mark.parametrize(
    ("found", "velocity", "words"),
    [
        (lambda mine, start: 2 * start - mine.mean(axis=0), None, "block.velocity is subtracted from block.start"),
        (lambda mine, start: start, None, "block.start does not change"),
        (lambda mine, start: start, lambda step: 0 * step, "block.velocity does not change"),
        (lambda mine, start: 2 * start - mine.mean(axis=0), lambda step: -step, "the step has the wrong sign"),
    ],
    ids=["minus the velocity", "start unchanged", "a local velocity", "the wrong sign"],
)
def test_the_velocity_is_judged_before_the_start_that_follows_from_it(found, velocity, words):
    assert words in after_a_block("block_momentum", found, velocity)


GRADIENTS, KEPT = numpy.array([3.0, -1.0, 0.5, -0.5]), numpy.array([0.0, 1.0, -2.0, 0.25])
OWED = GRADIENTS + KEPT
SIGNS = {"scale": numpy.abs(OWED).mean(keepdims=True), "positive": 1.0 * (OWED >= 0)}
SENT = numpy.where(OWED >= 0, SIGNS["scale"], -SIGNS["scale"])
ONE_BIT = {"gradients": GRADIENTS, "before": KEPT, "owed": OWED, **SIGNS, "left": OWED - SENT}
TOP_K = {"gradients": GRADIENTS, "owed": GRADIENTS, "places": numpy.array([0.0]), "values": GRADIENTS[:1]}
TOP_K["left"] = numpy.array([0, *GRADIENTS[1:]])


@pytest.mark.parametrize(
    ("call", "part", "words"),
    [
        (ONE_BIT, "", ""),
        (TOP_K, "", ""),
        ({name: one for name, one in ONE_BIT.items() if name != "owed"}, "", ""),  # changed in place
        (ONE_BIT | {"owed": GRADIENTS}, "owed", "the gradients plus the residual"),
        (ONE_BIT | {"scale": numpy.ones(1)}, "scale", "instead of 1.188"),
        (ONE_BIT | {"positive": numpy.ones(4)}, "positive", "should be `owed >= 0`"),
        (ONE_BIT | {"left": OWED + SENT}, "left", "`owed` minus what is sent"),
        ({name: one for name, one in ONE_BIT.items() if name != "left"}, "left", "no residual is stored"),
        (TOP_K | {"places": numpy.array([1.0]), "values": GRADIENTS[1:2]}, "places", "largest absolute values"),
        (TOP_K | {"values": numpy.ones(1)}, "values", "`values` should be the numbers"),
        (TOP_K | {"left": GRADIENTS}, "left", "`owed` minus what is sent"),
    ],
)
def test_each_part_of_a_hook_is_judged_by_the_parts_before_it(call, part, words):
    found, problem = hooks._first_wrong_part([call])
    assert found == part and words in problem


@pytest.mark.parametrize(("call", "words"), [(ONE_BIT | {"owed": GRADIENTS}, "is lost"), (TOP_K, "`values` are")])
def test_a_mistake_in_a_late_part_is_not_called_one_in_an_early_part(call, words):
    right, found = numpy.zeros((1, 2)), numpy.ones((1, 2))
    expected = {"right": right, hooks.LOST: found, "`values` are computed from the gradients": found}
    calls = [call if call is not TOP_K else TOP_K | {"values": numpy.ones(1)}]
    seen = [{"steps": [found[0]], "misused": "", "parts": calls}]
    assert words in hooks.as_simulated("the mean")(seen, {}, expected)


@pytest.mark.parametrize(("kind", "wrong"), [("float32", False), ("float16", True)])
def test_half_converts_its_result_back_to_the_type_of_the_gradients(kind, wrong):
    seen = [{"steps": [numpy.zeros(2)], "misused": "", "forgotten": False, "types": [kind]}]
    problem = half_and_late.of_all_ranks(seen, {"dtype": "float16"}, {"right": numpy.zeros((1, 2))})
    assert ("convert the tensor back" in problem) if wrong else problem is None


def chunks_after(change, places=range(3)):
    """The tensors of three ranks after a ring, and their sum; change: what rank 0 has
    in each of the chunks `places`, of the numbers of all ranks in this chunk."""
    case = {"function": "ring", "ranks": 3, "lengths": [13], "seed": 1}
    of_ranks = [numbers(1, rank, 13) for rank in range(3)]
    tensors = [sum(of_ranks) for _ in range(3)]
    for place in places:
        parts = [numpy.array_split(one, 3)[place] for one in of_ranks]
        numpy.array_split(tensors[0], 3)[place][:] = change(parts)
    return [{"found": [{"tensor": one, "messages": [], "collectives": []}]} for one in tensors], case


def test_a_chunk_that_is_copied_or_added_by_mistake_names_the_other_operation():
    replaced = all_reduce.sum_of_one_chunk(*chunks_after(lambda parts: parts[1]), None)
    assert "the chunk that arrives replaces yours: add it" in replaced
    added = all_reduce.sum_on_every_rank(*chunks_after(lambda parts: sum(parts) + parts[0], [0]), None)
    assert "the chunk that arrives is added: replace yours" in added


def test_a_tensor_that_nobody_changed_is_to_be_changed_in_place():
    seen, case = chunks_after(sum)
    for rank, of_rank in enumerate(seen):
        of_rank["found"][0]["tensor"] = numbers(1, rank, 13)
    assert "only names another tensor" in all_reduce.sum_on_every_rank(seen, case, None)
