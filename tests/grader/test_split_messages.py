"""What the checks of split networks say about a mistake is true: a sentence on it, and none that follows from another
mistake."""

from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn

from grader.sandbox import Limits
from grader.sandbox.rank import REASONS, StudentMistake, reported_error
from grader.units.model_parallel import fully_sharded, memory, mesh, pipeline, products_sequence
from grader.units.model_parallel.probes import probe_products

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


class Wrong(torch.autograd.Function):
    """An operator whose backward returns what it is told."""

    @staticmethod
    def forward(context, x, returned):
        context.returned = returned
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return context.returned


def tensor():
    return torch.ones(2, 3, requires_grad=True)


MISTAKES = {
    "only for scalar outputs": lambda: tensor().backward(),
    "mat1 and mat2 shapes": lambda: nn.Linear(2, 4)(tensor()),
    "incorrect number of gradients": lambda: Wrong.apply(tensor(), torch.ones(2, 3)).sum().backward(),
    "invalid gradient": lambda: Wrong.apply(tensor(), (torch.ones(2, 5), None)).sum().backward(),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_an_error_of_pytorch_that_many_meet_has_its_reason_beside_it(words):
    with pytest.raises(RuntimeError) as caught:
        MISTAKES[words]()
    reason = next(reason for of_torch, reason in REASONS.items() if words in of_torch)
    assert reported_error(caught.value, Limits())["message"].endswith(f": {reason}")


@pytest.mark.parametrize(("layer", "kind"), [("key", "rows"), ("out", "columns")])
def test_a_layer_that_is_split_in_the_wrong_dimension_is_named(layer, kind):
    columns, rows = (of(nn.Linear(2, 2), 0, 2) for of in (probe_products.Columns, probe_products.Rows))
    right = {"query": columns, "key": columns, "value": columns, "out": rows}
    probe_products.split_in_their_dimensions(SimpleNamespace(**right))
    with pytest.raises(StudentMistake, match=f"`attention.{layer}` is split by `{kind}`"):
        wrong = right | {layer: rows if kind == "rows" else columns}
        probe_products.split_in_their_dimensions(SimpleNamespace(**wrong))
