"""Notebook 06's pictures of sharded state: ZeRO by hand names the first wrong entry, and a step's collectives have their
names."""

import pytest
from IPython.display import Image

from handson.notebook import sharded_state
from handson.profiling.timeline import COMMUNICATION, COMPUTE, HOST, RANGE, STEP, Builder, Run

ALL, OWN = ["ABCD"] * 4, list("ABCD")
RIGHT = {
    "data parallel": {"parameters": ALL, "gradients": ALL, "moments": ALL},
    "ZeRO-1": {"parameters": ALL, "gradients": ALL, "moments": OWN},
    "ZeRO-2": {"parameters": ALL, "gradients": OWN, "moments": OWN},
    "ZeRO-3": {"parameters": OWN, "gradients": OWN, "moments": OWN},
}


@pytest.mark.filterwarnings("error")
def test_a_right_table_has_the_sums_of_the_formulas(capsys):
    picture = sharded_state.zero_by_hand(RIGHT)
    assert isinstance(picture, Image) and capsys.readouterr().out == "All entries are right.\n"
    for method, total in zip(RIGHT, (16, 10, 7, 4)):
        assert f"{method} {total}, {total}, {total}, {total} MB" in picture.alt
    written = [text.get_text() for text in sharded_state.draw_by_hand(RIGHT)[0].axes[0].texts]
    assert "formula: 4 + 4 / 4 + 8 / 4 = 7 MB" in written and "formula: ?" not in written


@pytest.mark.parametrize(
    ("method", "kind", "rank", "entry", "words"),
    [
        ("ZeRO-1", "gradients", 3, "D", "does not shard the gradients: rank 3 holds A, B, C, D"),
        ("ZeRO-2", "moments", 1, "A", "ZeRO-2 shards the moments: rank 1 holds B"),
        ("ZeRO-3", "parameters", 0, "", "still missing"),
        ("ZeRO-3", "parameters", 2, "ccx", "each of the letters ABCD once"),
        ("ZeRO-3", "parameters", 2, None, "still missing"),
    ],
)
def test_the_first_wrong_entry_is_named(method, kind, rank, entry, words):
    table = RIGHT | {"ZeRO-3": RIGHT["ZeRO-3"] | {"moments": []}}  # the last entries are wrong, too
    table[method] = table[method] | {kind: [*RIGHT[method][kind][:rank], entry, *RIGHT[method][kind][rank + 1 :]]}
    said = sharded_state.draw_by_hand(table)[1].rpartition("MB. ")[2]
    assert said.startswith(f"{method}: the {kind} of rank {rank} are") and words in said


@pytest.mark.parametrize("table", [{}, {"ZeRO-1": None}, {"ZeRO-1": {"moments": 3}}])
def test_an_empty_table_is_a_picture_of_empty_entries(table):
    said = sharded_state.draw_by_hand(table)[1]
    assert "data parallel: the parameters of rank 0 are still missing" in said and "ZeRO-3 0, 0, 0, 0 MB" in said


def recorded(started, on_gpu=False):
    """A Run with one step: an all-gather in forward, and in backward a reduce-scatter that gloo builds from an all-reduce,
    within an operator. started: the operators that start them."""
    events = [
        (0, 100, "ProfilerStep#5", STEP),
        (1, 2, "FSDP::root_pre_forward", RANGE),
        (10, 20, "gloo:all_gather", COMMUNICATION),
        (20, 30, "aten::addmm", COMPUTE),
        (30, 31, "FSDP::pre_backward", RANGE),
        (31, 80, "autograd::engine::evaluate_function", COMPUTE),
        (50, 80, "FSDP::post_backward_reduce", RANGE),
        (51, 79, "gloo:all_reduce", COMMUNICATION),
        (85, 99, "Optimizer.step#Adam.step", RANGE),
        *((9 + 41 * number, 10 + 41 * number, name, HOST) for number, name in enumerate(started)),
    ]
    builder = Builder()
    for begin, end, name, kind in events:
        builder.add(begin * 10**6, end * 10**6, name, kind, "thread 1")
    return Run("recorded", [builder.finish(rank=0, on_gpu=on_gpu)])


@pytest.mark.filterwarnings("error")
def test_collectives_have_the_names_of_the_operators_that_start_them():
    run = recorded(["c10d::_allgather_base_", "c10d::_reduce_scatter_base_"])
    drawing, alt = sharded_state.draw_collectives({"two": run, "the same": run})
    assert "two: 1 all-gather and 1 reduce-scatter in a step; the same: 1 all-gather" in alt
    above = drawing.axes[0]
    assert [label.get_text() for label in above.get_yticklabels()] == ["computation", "all-gather", "reduce-scatter"]
    assert [text.get_text() for text in above.texts] == ["forward", "backward", "update"]
    assert isinstance(sharded_state.collectives({"two": run}), Image)


def test_without_those_operators_collectives_keep_their_own_names():
    assert "1 all-gather and 1 all-reduce in a step" in sharded_state.draw_collectives({"one": recorded([])})[1]


def test_a_core_computes_nothing_while_it_waits_in_a_hook():
    computation = sharded_state.draw_collectives({"one": recorded([])})[0].axes[0].collections[0]
    assert max(path.get_extents().xmax for path in computation.get_paths()) == 50
