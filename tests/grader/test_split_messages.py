"""What the checks of split networks say about a mistake is true: a sentence on it, and none that follows from another
mistake."""

import numpy

from grader.units.model_parallel import fully_sharded, memory, mesh, pipeline, products_sequence

BLOCKS, NUMBERS = 3, 100
GATHER, SCATTER = "allgather", "reduce_scatter"
GRADIENTS = {"gradients": numpy.linspace(-1, 1, NUMBERS)}


def wrapped(bytes_in_float32=4, bytes_in_bfloat16=2, gathers=BLOCKS + 1, again=BLOCKS, **others):
    """What a rank of two gives if the blocks and the rest of a network are sharded."""

    def gathered(bytes_of_one, times):
        return [[GATHER, bytes_of_one * NUMBERS / times]] * times

    found = {"whole": [], "numbers": NUMBERS, "gradients": GRADIENTS["gradients"]}
    found |= {"float32": gathered(bytes_in_float32, gathers), "forward": gathered(bytes_in_bfloat16, gathers)}
    return found | {"backward": [[GATHER, 1]] * again + [[SCATTER, 2 * 4 * NUMBERS]]} | others


def said_of_wrap(**found):
    judges = fully_sharded.by_block, fully_sharded.again, fully_sharded.precision
    return [judge([wrapped(**found)] * 2, {"blocks": BLOCKS}, GRADIENTS) for judge in judges]


def test_a_network_that_is_not_wrapped_is_told_nothing_about_its_policy():
    assert said_of_wrap() == [None] * 3
    for found in {"whole": ["head"], "forward": [], "backward": [], "float32": []}, {"gathers": 1, "again": 1}:
        first, *others = said_of_wrap(**found)
        assert first and others == [None, None]


def test_a_policy_that_ignores_the_data_type_is_no_wrong_division():
    rounded = GRADIENTS["gradients"] * 1.01
    *others, last = said_of_wrap(bytes_in_float32=2, gradients=rounded)
    assert others == [None, None] and "ignores `dtype`" in last
    assert "mean over all ranks" in said_of_wrap(gradients=rounded)[0]


def test_a_shard_of_other_numbers_is_not_called_a_copy():
    rows = numpy.arange(6.0).reshape(2, 3)
    seen = [{"shard": rows[rank], "apart": ["shard"]} for rank in (0, 1)]
    assert "copy" in memory.in_place(seen, {}, {"rows": rows})
    seen = [{"shard": numpy.zeros(3), "apart": ["shard"]}] * 2
    assert memory.in_place(seen, {}, {"rows": rows}) is None and memory.own_row(seen, {}, {"rows": rows})


def said_of_messages(numbers, sent):
    """What is said of stage 0 of two, if it sends these numbers forward."""
    stage = {"inputs": [numpy.ones(2)] * 2, "sent": sent, "numbers": numbers}
    right = {"inputs": [numpy.ones(2)] * 2, "outputs": [numpy.full(2, 4.0), numpy.full(2, 6.0)]}
    case = {"stages": 2, "micro_batches": 2, "operations": [["F0", "F1"]] * 2}
    return pipeline.outputs_travel([{"stages": [stage, {"inputs": right["inputs"], "sent": []}]}], case, [right] * 2)


def test_outputs_that_are_divided_are_told_who_divides():
    said = said_of_messages([numpy.full(2, 2.0), numpy.full(2, 3.0)], [["F0", 1], ["F1", 1]])
    assert "only the last stage divides" in said and "twice" not in said


def test_numbers_of_messages_and_collectives_are_in_the_singular_and_in_the_plural():
    one = numpy.full(2, 4.0)
    assert "sends 0 messages with the outputs of micro-batch 1" in said_of_messages([one], [["F0", 1]])
    sent = {"Gather": {"sent": [["allgather", 8]]}, "Scatter": {"sent": []}}
    assert "uses 1 collective in" in products_sequence.one_of_each([sent] * 2, {}, None)


def test_gradients_that_are_a_third_are_not_called_too_large():
    right = numpy.arange(1.0, 5.0)
    found = {"gradients": right / 3, "loss": 0.0}
    expected = [{"gradients": {"right": right}, "loss": 0.0}]
    said = pipeline.as_the_whole_batch([{"stages": [found]}], {"stages": 1}, expected)
    assert "0.333 times as large as they should be" in said


def test_a_seed_that_is_not_used_is_no_matter_of_gpus():
    same = {"first": [1.0], "second": [1.0], "again": [1.0], "gpus": [[0], [0], [0]]}
    assert mesh.by_the_seed([same], {}, None).startswith("on rank 0, the random numbers do not depend on `seed`")
