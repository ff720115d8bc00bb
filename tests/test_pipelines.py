"""The simulator of pipelines: schedules against the formulas of their bubbles, and schedules that cannot be carried
out."""

import itertools
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from IPython.display import Image

from handson.notebook import model_parallel
from handson.pipelines import ScheduleError, division_problem, interleaved, schedule_problem, simulate, zero_bubble

SOLUTION = runpy.run_path(
    str(Path(__file__).resolve().parent.parent / "solutions/06_model_parallel/pytorch/schedules.py")
)
SIZES = list(itertools.product(range(1, 6), range(1, 10)))


def gpipe(stages, micro_batches):
    return [SOLUTION["gpipe"](stage, stages, micro_batches) for stage in range(stages)]


def one_forward_one_backward(stages, micro_batches):
    return [SOLUTION["one_forward_one_backward"](stage, stages, micro_batches) for stage in range(stages)]


@pytest.mark.parametrize("schedule_of", [gpipe, one_forward_one_backward])
def test_the_bubble_is_that_of_the_formula(schedule_of):
    for stages, micro_batches in SIZES:
        for backward in (1, 2, 2.5):
            timeline = simulate(schedule_of(stages, micro_batches), backward=backward)
            assert timeline.bubble == pytest.approx((stages - 1) / (micro_batches + stages - 1))
            assert timeline.end == pytest.approx((micro_batches + stages - 1) * (1 + backward))


def test_gpipe_holds_all_micro_batches_and_1f1b_one_for_each_stage_from_there_on():
    for stages, micro_batches in SIZES:
        assert simulate(gpipe(stages, micro_batches)).held == [micro_batches] * stages
        expected = [min(stages - stage, micro_batches) for stage in range(stages)]
        assert simulate(one_forward_one_backward(stages, micro_batches)).held == expected


def test_chunks_divide_the_bubble_of_1f1b_by_their_number_and_hold_more():
    for stages, rounds, chunks in itertools.product(range(2, 6), range(1, 4), range(2, 4)):
        timeline = simulate(interleaved(stages, rounds * stages, chunks))
        assert timeline.end == pytest.approx(3 * (rounds * stages + (stages - 1) / chunks))
        if rounds > 1:
            assert timeline.held[0] == pytest.approx(stages + (stages - 1) / chunks)
    with pytest.raises(ScheduleError, match="a multiple of 3 micro-batches for 3 stages, not 4"):
        interleaved(3, 4)


def test_zero_bubble_waits_a_third_as_long_as_1f1b_and_holds_as_much_as_its_first_stage():
    for stages, micro_batches in SIZES:
        if micro_batches >= stages:
            timeline = simulate(zero_bubble(stages, micro_batches))
            assert timeline.end == pytest.approx(3 * micro_batches + stages - 1)
            assert timeline.held == [stages] * stages


def test_only_whole_operations_of_a_stage_are_for_the_students_pipeline():
    for schedule in (zero_bubble(2, 2), interleaved(2, 2)):
        assert "pipeline.py runs only whole forwards and backwards" in schedule_problem(schedule, 2)


def test_two_stages_by_hand():
    assert one_forward_one_backward(2, 3) == [
        ["F0", "F1", "B0", "F2", "B1", "B2"],
        ["F0", "B0", "F1", "B1", "F2", "B2"],
    ]
    times = {
        (stage, name): (begin, end)
        for stage, name, begin, end in simulate([["F0", "F1", "B1", "B0"]] * 2, transfer=0.5).operations
    }
    assert times == {
        (0, "F0"): (0, 1),
        (0, "F1"): (1, 2),
        (1, "F0"): (1.5, 2.5),
        (1, "F1"): (2.5, 3.5),
        (1, "B1"): (3.5, 5.5),
        (1, "B0"): (5.5, 7.5),
        (0, "B1"): (6, 8),
        (0, "B0"): (8, 10),
    }


def test_no_operation_begins_before_what_it_needs_has_ended_and_no_stage_does_two_at_once():
    for stages, micro_batches in SIZES:
        operations = simulate(one_forward_one_backward(stages, micro_batches)).operations
        ends = {(stage, name): end for stage, name, _, end in operations}
        for stage, name, begin, _ in operations:
            if name[0] == "F" and stage:
                assert begin >= ends[stage - 1, name]
            if name[0] == "B":
                assert begin >= ends[min(stage + 1, stages - 1), name if stage + 1 < stages else f"F{name[1:]}"]
        for stage in range(stages):
            times = [(begin, end) for at, _, begin, end in operations if at == stage]
            assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(times))


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        (
            [["F0", "B0", "F1", "B1"], ["F1", "B1", "F0", "B0"]],
            (
                "the schedule deadlocks: stage 0 waits for B0 of stage 1 to start B0, stage 1 waits for F1 of stage"
                " 0 to start F1"
            ),
        ),
        (
            [["F0", "B0"], ["F0", "B0", "F1", "B1"]],
            "stage 0 never runs F1: each stage needs a forward and a backward for each micro-batch",
        ),
        (
            [["F0", "F1", "B0"], ["F0", "F1", "B0", "B1"]],
            "stage 0 never runs B1: each stage needs a forward and a backward for each micro-batch",
        ),
        ([["B0", "F0"]], "stage 0 runs B0 before F0, whose activations it needs"),
        ([["F0", "F0", "B0"]], "stage 0 runs F0 twice"),
        ([["F0", "X0"]], "stage 0: 'X0' is not an operation; F0 is the forward of micro-batch 0, and B0 its backward"),
        ([["F0", "W0", "I0"]], "stage 0 runs W0 before I0, whose gradients it needs"),
        (
            [["F0", "B0", "I0", "W0"]],
            "stage 0 runs B0 and I0: B0 is the whole backward, and I0 and W0 are its two halves",
        ),
        ([["F0", "I0"]], "stage 0 never runs W0: each stage needs a forward and a backward for each micro-batch"),
        ([["F0.0", "F0.1", "B0.0", "B0.1"]], "the schedule deadlocks: stage 0 waits for B0.1 of stage 0 to start B0.0"),
        ([["F0", 0]], "stage 0: 0 is not an operation; F0 is the forward of micro-batch 0, and B0 its backward"),
        ([], "a schedule needs a list of operations for each stage, such as [['F0', 'B0'], ['F0', 'B0']]"),
        (
            [["F0", "B0"], []],
            "a schedule needs a list of operations for each stage, such as [['F0', 'B0'], ['F0', 'B0']]",
        ),
    ],
)
def test_a_schedule_that_cannot_be_carried_out_is_one_sentence(schedule, sentence):
    with pytest.raises(ScheduleError) as error:
        simulate(schedule)
    assert str(error.value) == sentence


def test_the_figure_has_a_row_for_each_stage_and_words_for_all_of_it():
    timeline = simulate(gpipe(3, 4))
    drawing, description = timeline.draw("GPipe")
    axes = drawing.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["stage 0", "stage 1", "stage 2"]
    assert axes.get_title(loc="left") == "GPipe: 33.3% of the time idle" and len(axes.patches) == 24
    assert "Stage 2: F0, F1, F2, F3, B0, B1, B2, B3." in description
    assert isinstance(timeline.picture(), Image)


def test_the_figure_shows_halves_of_a_backward_chunks_and_activations_held():
    drawing, description = simulate(zero_bubble(2, 2)).draw()
    assert [text.get_text() for text in drawing.legends[0].get_texts()][1:] == ["backward: inputs", "backward: weights"]
    assert "Stage 1: F0, I0, F1, I1, W0, W1. It holds at most 2." in description
    drawing, _ = simulate(interleaved(2, 2)).draw()
    assert [text.get_text() for text in drawing.legends[0].get_texts()][-1] == "later chunk"
    assert {"holds 2", "holds 1.5"} <= {text.get_text() for text in drawing.axes[0].texts}


def test_layers_and_batches_that_cannot_be_divided_are_one_sentence():
    assert division_problem(3, 5, 64, 6, chunks=2).startswith(
        "5 layers cannot be split into 3 stages of 2 chunks: start 2 ranks at most"
    )
    assert "a multiple of 2 micro-batches" in division_problem(2, 6, 63, 3, chunks=2)
    assert division_problem(4, 4, 64, 8) is None
    assert (
        division_problem(4, 3, 64, 8)
        == "3 layers cannot be split into 4 stages: start 3 ranks at most, or give the network more --blocks"
    )
    assert (
        division_problem(2, 6, 63, 2)
        == "a batch of 63 images cannot be split into 2 equal micro-batches: --micro-batches must divide --batchsize"
    )


def test_a_schedule_for_other_micro_batches_or_with_a_deadlock_is_one_sentence():
    assert schedule_problem([["F0", "F1", "B0", "B1"]] * 2, 2) is None
    assert (
        schedule_problem([["F0", "F1", "B0", "B1"]] * 2, 1)
        == "stage 0 runs F1, but the micro-batches are numbered from 0 to 0"
    )
    assert (
        schedule_problem([["F0", "B0"]] * 2, 2)
        == "the schedule has the micro-batches [0], but the batch is split into 2: use each number below 2 once"
    )
    assert "deadlocks: stage 0 waits for B0 of stage 1" in schedule_problem(
        [["F0", "B0", "F1", "B1"], ["F1", "B1", "F0", "B0"]], 2
    )


def test_a_measured_step_begins_at_0_in_milliseconds(tmp_path):
    operations = [[0, "F0", 2.0, 2.001], [1, "F0", 2.001, 2.002], [1, "B0", 2.002, 2.004], [0, "B0", 2.004, 2.006]]
    (tmp_path / "pipeline.json").write_text(json.dumps({"schedule": [["F0", "B0"]] * 2, "operations": operations}))
    timeline = model_parallel.timeline(tmp_path)
    assert (
        timeline.operations[0].begin == 0 and timeline.end == pytest.approx(6) and timeline.bubble == pytest.approx(0.5)
    )
    drawing, _ = timeline.draw("naive")
    assert drawing.axes[0].get_xlabel() == "time [ms]"
    assert [text.get_text().split()[0] for text in drawing.legends[0].get_texts()] == ["forward", "backward"]


def test_figures_of_pipelines_say_in_words_what_they_show(monkeypatch):
    runs = {
        "one process": [SimpleNamespace(throughput=500, disturbance=None)],
        "gpipe": [SimpleNamespace(throughput=800, disturbance=None)],
    }
    shown = model_parallel.throughputs(runs, {"gpipe": 16 / 9})
    assert "gpipe 800 images/s (1.60 times)" in shown.alt
    monkeypatch.setattr(
        model_parallel,
        "held",
        {"a": [8 * model_parallel.MIB] * 2, "b": [2 * model_parallel.MIB, model_parallel.MIB]}.get,
    )
    shown = model_parallel.activations(
        {"gpipe": "a", "1f1b": "b"},
        lambda schedule, stage, stages, micro_batches, activations: (2 - stage) * activations,
        2,
        8,
    )
    assert "stage 0: GPipe 8.0, 1F1B 2.0, predicted 2.0; stage 1: GPipe 8.0, 1F1B 1.0, predicted 1.0" in shown.alt


def test_stages_that_exchange_other_messages_than_their_neighbours_are_one_sentence():
    for stages, micro_batches in SIZES:
        for schedule_of in (gpipe, one_forward_one_backward):
            assert schedule_problem(schedule_of(stages, micro_batches), micro_batches) is None
    # the simulator has a place for each message; between two ranks the first one sent is the first one received
    schedule = [["F0", "F1", "B0", "B1"], ["F0", "F1", "B1", "B0"]]
    assert simulate(schedule).held == [2, 2]
    assert schedule_problem(schedule, 2) == (
        "the schedule deadlocks, because a stage receives the messages of another stage in the order in which they were"
        " sent: stage 0 waits for B0 of stage 1, stage 1 waits until stage 0 receives B1"
    )
