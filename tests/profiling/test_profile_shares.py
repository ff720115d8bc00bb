"""Shares, overlap, waiting and the verdict, against figures computed by hand."""

import made_profiles as made
import pytest

from handson.profiling import analysis, report, spans
from handson.profiling.timeline import ProfileError


def two_ranks():
    """Steps of 100 ms, by hand. Rank 0: loads 30, computes 50, all-reduce from 70 to 95 (10 of it hidden), 5 nothing.
    Rank 1: loads 5, computes 50, all-reduce from 45 (10 hidden), waits until rank 0 comes at 70, transfer until 95."""
    zero, one = [], []
    for number in (1, 2):
        at = 100 * number
        zero += [
            made.step(number, at, at + 100),
            ("loading", at, at + 30),
            ("compute", at + 30, at + 80),
            ("communication", at + 70, at + 95),
        ]
        one += [
            made.step(number, at, at + 100),
            ("loading", at, at + 5),
            ("compute", at + 5, at + 55),
            ("communication", at + 45, at + 95),
        ]
    return made.run(made.timeline(0, zero, host="a"), made.timeline(1, one, host="a"))


def test_the_parts_of_a_step_are_those_computed_by_hand():
    zero, one = analysis.shares(two_ranks())
    assert (zero.steps, zero.step) == (2, pytest.approx(0.1))
    assert zero.parts == pytest.approx(
        dict(compute=0.05, loading=0.03, copy=0, communication=0.015, waiting=0, host=0.005)
    )
    assert one.parts == pytest.approx(
        dict(compute=0.05, loading=0.005, copy=0, communication=0.025, waiting=0.015, host=0.005)
    )
    assert (zero.communication, one.communication) == (pytest.approx(0.025), pytest.approx(0.05))
    assert (zero.overlap, one.overlap) == (pytest.approx(0.4), pytest.approx(0.2))
    assert (zero.busy, one.busy) == (pytest.approx(0.8), pytest.approx(0.55))
    assert one.waits == {0: pytest.approx(0.015)}


def test_collectives_that_do_not_meet_are_not_taken_for_one():
    """As in profiles of which only some events were kept."""
    zero = made.timeline(0, [made.step(1, 0, 100), ("communication", 0, 30)], host="a")
    one = made.timeline(1, [made.step(1, 0, 100), ("communication", 60, 90)], host="a")
    assert [rank.parts["waiting"] for rank in analysis.shares(made.run(zero, one))] == [0, 0]


def test_profiles_too_long_for_one_piece_give_the_same(monkeypatch):
    run = two_ranks()
    whole, longest = analysis.shares(run), analysis.operators(run.timelines[0], run.timelines[0].steps())
    monkeypatch.setattr("handson.profiling.timeline.AT_ONCE", 4)
    assert [len(list(one.pieces(one.steps()))) for one in run.timelines] == [2, 2]
    assert sum(spans.length(within) for _, within in run.timelines[0].pieces(run.timelines[0].steps())) == 200 * made.MS
    assert analysis.shares(run) == whole and analysis.operators(run.timelines[0], run.timelines[0].steps()) == longest


def test_parts_add_up_to_the_step():
    for rank in analysis.shares(two_ranks()):
        assert sum(rank.parts.values()) == pytest.approx(rank.step)


def test_the_verdict_names_who_waits_for_whom_and_why():
    finding = analysis.verdict(two_ranks())
    assert finding.sentence == "rank 1 waits 15 % of each step for rank 0: data loading"
    assert (finding.kind, finding.rank, finding.slow_rank, finding.cause) == ("waiting", 1, 0, "loading")


def test_waiting_is_not_the_verdict_where_every_rank_loses_more_otherwise():
    ranks = []
    for rank, loading in enumerate((60, 48)):
        events = [("loading", 0, loading), ("compute", loading, loading + 25), ("communication", loading + 25, 95)]
        ranks.append(made.timeline(rank, [made.step(1, 0, 100), *events], host="a"))
    finding = analysis.verdict(made.run(*ranks))
    assert finding.sentence == "54 % of each step is data loading"


def test_a_rank_with_twice_the_work_is_named_with_computation():
    ranks = [
        made.timeline(
            rank, [made.step(1, 0, 100), ("compute", 0, 90 - 45 * rank), ("communication", 90 - 45 * rank, 95)]
        )
        for rank in (0, 1)
    ]
    assert analysis.verdict(made.run(*ranks)).sentence == "rank 1 waits 45 % of each step for rank 0: computation"


def in_turns(early, late, end):
    """Two ranks that come late to every other collective, ms of a step of 100."""
    ranks = []
    for rank in (0, 1):
        events = []
        for number in range(4):
            at = 100 * number
            ready = at + (late if number % 2 == rank else early)
            events += [made.step(number, at, at + 100), ("compute", at, ready), ("communication", ready, at + end)]
        ranks.append(made.timeline(rank, events, host="a"))
    return made.run(*ranks)


def test_more_communication_than_waiting_is_a_matter_of_communication():
    """As with parameters that are sent about in every step, by ranks that are a little uneven."""
    assert analysis.verdict(in_turns(early=56, late=80, end=82)).kind == "waiting"
    assert analysis.verdict(in_turns(early=30, late=54, end=95)).kind == "communication"


@pytest.mark.parametrize(
    ("event", "words", "kind"),
    [
        (("loading", 0, 40), "40 % of each step is data loading", "loading"),
        (
            ("communication", 60, 100, "gloo:all_reduce"),
            (
                "40 % of each step is communication that computation does not hide, most of it in gloo:all_reduce (1 a"
                " step)"
            ),
            "communication",
        ),
        (("range", 0, 100), "40 % of each step is time between operators", "host"),
        (("compute", 0, 100), "100 % of each step is computation: no other part takes 10 %", "compute"),
    ],
)
def test_the_verdict_on_one_rank_names_the_largest_loss(event, words, kind):
    compute = ("compute", 40, 100) if event[0] != "communication" else ("compute", 0, 60)
    finding = analysis.verdict(made.run(made.timeline(0, [made.step(1, 0, 100), compute, event])))
    assert (finding.sentence, finding.kind) == (words, kind)


def test_a_synchronisation_in_every_step_of_a_gpu_is_named():
    events = [made.step(n, 100 * n, 100 * n + 100) for n in (1, 2)]
    events += [
        (kind, 100 * n + begin, 100 * n + end, name)
        for n in (1, 2)
        for kind, begin, end, name in (
            ("compute", 0, 50, "gemm"),
            ("host", 10, 50, "cudaDeviceSynchronize"),
            ("host", 50, 90, "aten::mm"),
        )
    ]
    finding = analysis.verdict(made.run(made.timeline(0, events, on_gpu=True)))
    assert (
        finding.sentence
        == "50 % of each step is time between operators in which the GPU idles, and cudaDeviceSynchronize is called 1"
        " times"
    )


def test_what_a_core_computes_to_load_a_batch_is_loading():
    events = [made.step(1, 0, 100), ("loading", 0, 30), ("compute", 5, 25, "aten::stack"), ("compute", 28, 90)]
    [rank] = analysis.shares(made.run(made.timeline(0, events)))
    assert rank.parts == pytest.approx(dict(compute=0.06, loading=0.03, copy=0, communication=0, waiting=0, host=0.01))


def test_loading_costs_a_gpu_only_what_it_does_not_hide():
    events = [made.step(1, 0, 100), ("loading", 0, 60), ("compute", 20, 90), ("copy", 85, 95)]
    [rank] = analysis.shares(made.run(made.timeline(0, events, on_gpu=True)))
    assert rank.parts == pytest.approx(
        dict(compute=0.07, loading=0.02, copy=0.005, communication=0, waiting=0, host=0.005)
    )


def test_the_times_of_operators_are_without_those_they_call():
    events = [
        ("compute", 0, 10, "outer"),
        ("compute", 1, 4, "inner"),
        ("compute", 2, 3, "innermost"),
        ("compute", 5, 9, "inner"),
        ("compute", 10, 12, "next"),
    ]
    timeline = made.timeline(0, [made.step(1, 0, 20), *events])
    rows = analysis.operators(timeline, timeline.steps())
    assert {name: (pytest.approx(1000 * seconds), calls) for name, seconds, calls in rows} == {
        "outer": (3, 1),
        "inner": (6, 2),
        "innermost": (1, 1),
        "next": (2, 1),
    }
    assert [name for name, _, _ in rows][0] == "inner"


def test_only_steps_that_all_ranks_recorded_count():
    zero = made.timeline(0, [made.step(n, 10 * n, 10 * n + 10) for n in (1, 2, 3)] + [("compute", 10, 15)])
    one = made.timeline(1, [made.step(n, 10 * n, 10 * n + 10) for n in (2, 3, 4)])
    assert [rank.steps for rank in analysis.shares(made.run(zero, one))] == [2, 2]
    with pytest.raises(ProfileError, match="no step in common"):
        analysis.shares(made.run(zero, made.timeline(1, [made.step(7, 1, 2)])))


def test_missing_ranks_are_said():
    run = made.run(made.timeline(0, [made.step(1, 0, 10), ("compute", 0, 9)], size=128))
    assert any("1 of 128 ranks" in line for line in report.text(run))


def test_a_profile_without_marks_of_iterations_is_said_to_be_one_step():
    words = "No iterations are marked in it: the whole recording counts as one step."
    events = [("compute", 0, 10), ("compute", 15, 20)]
    assert words in report.text(made.run(made.timeline(0, events)))
    assert words not in report.text(made.run(made.timeline(0, [made.step(1, 0, 20), *events])))
