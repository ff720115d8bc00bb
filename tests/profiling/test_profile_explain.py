"""Lost efficiency: each cause gets what was planted, and the causes add up to the loss."""

import dataclasses

import made_profiles as made
import pytest
from made_results import result

from handson.profiling import explain
from handson.profiling.timeline import ProfileError


def one_worker(compute=60.0, gap=5.0):
    events = []
    for number in range(3):
        at = 100 * number
        events += [made.step(number, at, at + compute + gap), ("compute", at, at + compute, "conv")]
    return made.run(made.timeline(0, events, size=1), name="one")


def workers(slower=0.0, late=0.0, transfer=0.0, more=0.0, gap=5.0):
    """Two of them: `conv` takes `slower` ms longer, rank 1 loads `late`, the all-reduce `transfer`, another operator
    `more`; ms."""
    ranks = []
    for rank in (0, 1):
        events = []
        for number in range(3):
            at = 200 * number
            ready = at + late * rank + 60 + slower + more
            end = at + late + 60 + slower + more + transfer
            events += [
                made.step(number, at, end + gap),
                ("compute", at + late * rank, at + late * rank + 60 + slower, "conv"),
            ]
            events += [("compute", ready - more, ready, "flatten"), ("communication", ready, end)]
            events += [("loading", at, at + late)] if rank and late else []
        ranks.append(made.timeline(rank, events, size=2, host="a"))
    return made.run(*ranks, name="two")


@pytest.mark.parametrize(
    ("planted", "causes"),
    [
        (dict(), dict()),
        (dict(transfer=20), dict(communication=20)),
        (dict(slower=15), dict(contention=15)),
        (dict(more=10), dict(overhead=10)),
        (dict(gap=12), dict(overhead=7)),
        # of the mean rank: rank 0 waits 30, rank 1 loads 30 more than one worker does
        (dict(late=30), dict(imbalance=15, overhead=15)),
        (dict(transfer=10, slower=5, more=3, gap=6), dict(communication=10, contention=5, overhead=4)),
    ],
)
def test_each_cause_gets_what_was_planted(planted, causes):
    explanation = explain.split(one_worker(), workers(**planted))
    step = 1000 * explanation.steps[1]
    expected = {cause: causes.get(cause, 0) / step for cause in explain.CAUSES}
    assert explanation.causes == pytest.approx(expected, abs=1e-6)
    assert explanation.rest == pytest.approx(0, abs=1e-6)
    assert explanation.loss == pytest.approx(1 - 65 / step)


def test_more_calls_of_an_operator_are_overhead_and_longer_ones_contention():
    def run(*calls, size):
        events = [
            made.step(1, 0, sum(calls)),
            *(("compute", sum(calls[:n]), sum(calls[: n + 1]), "copy") for n in range(len(calls))),
        ]
        return made.run(*(made.timeline(rank, events, size=size) for rank in range(size)))

    explanation = explain.split(run(10, size=1), run(15, 15, size=2))
    assert explanation.causes == pytest.approx(
        {"communication": 0, "imbalance": 0, "contention": 5 / 30, "overhead": 15 / 30}
    )


def test_what_no_cause_explains_is_said_and_given_to_none():
    """Copies that computation hides with two workers, and not with one: the step is shorter, but no operator is."""

    def gpus(size, copy_begin, end):
        events = [made.step(1, 0, end), ("compute", 0, 30, "conv"), ("copy", copy_begin, copy_begin + 30, "to GPU")]
        return made.run(*(made.timeline(rank, events, size=size, on_gpu=True) for rank in range(size)))

    explanation = explain.split(gpus(1, 30, 60), gpus(2, 0, 30))
    assert explanation.causes == pytest.approx(dict.fromkeys(explain.CAUSES, 0), abs=1e-6)
    assert explanation.loss == explanation.rest == pytest.approx(-1)
    assert "  -100.0 points  not explained" in explain.text(explanation)


def run_of(workers, seconds, **changes):
    return result(workers=workers, seconds=seconds, train_seconds=seconds, profiled=True, **changes)


def test_the_loss_that_throughput_shows_is_said_beside_it():
    one, two = one_worker(), workers(transfer=65 / 3)
    one.result, two.result = run_of(1, 10.0), run_of(2, 6.5)
    explanation = explain.split(one, two)
    assert explanation.measured == pytest.approx(1 - 10 / 13) and explanation.loss == pytest.approx(0.25)
    assert explain.text(explanation)[-1] == (
        "By the throughput of the whole runs, it takes 213.33 ms with 1 worker and 277.33 ms with 2: "
        "23.1 % is lost, 1.9 points from what is explained."
    )


def test_recorded_steps_that_are_not_like_the_others_are_noticed():
    one, two = one_worker(), workers(transfer=65 / 3)
    one.result, two.result = run_of(1, 10.0), run_of(2, 5.9)
    assert "record more of them" in explain.text(explain.split(one, two))[-1]


def test_runs_that_cannot_be_right_or_were_disturbed_are_named():
    one, two = one_worker(), workers(transfer=6)
    one.result, two.result = run_of(1, 10.0), run_of(2, 5.5, device="2 virtual GPUs, sharing 1 core of vm")
    assert (
        "An efficiency of 0.915 is more than 2 workers can reach on 1 core" in explain.text(explain.split(one, two))[-1]
    )
    node = {"name": "vm", "cores": 2, "seconds": 10.0, "used": 10.0, "others": 8.0}
    two.result = run_of(2, 5.5, usage={"begin": 0.0, "interval": 1.0, "devices": [], "nodes": [node]})
    assert "40 % of the cores of vm" in explain.text(explain.split(one, two))[-2]


def test_runs_under_other_conditions_are_not_compared():
    one, two = one_worker(), workers()
    one.result, two.result = run_of(1, 10.0), run_of(2, 6.5, batchsize=16)
    with pytest.raises(ProfileError, match=r"differ in batchsize \(32, 16\)"):
        explain.split(one, two)


def test_runs_in_the_wrong_order_or_without_all_ranks_are_refused():
    with pytest.raises(ProfileError, match="give the run with fewer workers first"):
        explain.split(workers(), one_worker())
    missing = workers()
    missing.timelines = [dataclasses.replace(one, size=4) for one in missing.timelines]
    with pytest.raises(ProfileError, match="not of all its ranks"):
        explain.split(one_worker(), missing)
