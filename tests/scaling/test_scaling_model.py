"""The model of a step: what it finds in runs whose parameters are known, and what it predicts from them."""

import numpy
import pytest

from handson.scaling import batch_size, message_times, slowest_worker
from handson.scaling.measured_runs import MeasuredNetwork, Run, RunsError
from handson.scaling.model import BAND, Plan, fit, predict

PARAMETERS, OVERHEAD, LATENCY, RATE = 250_000, 0.004, 0.0005, "100mbit"


def one_step(random, count):
    """Seconds of steps of one worker: never under 50 ms, with a tail."""
    return 0.05 + 0.01 * random.gamma(2, 0.5, count)


def synthetic(random, workers, count=300, latency=LATENCY):
    """A Run whose steps follow the model: the slowest worker, overhead, and a ring at RATE."""
    seconds = one_step(random, (count, workers)).max(axis=1)
    if workers > 1:
        seconds += OVERHEAD + message_times.ring(
            4 * PARAMETERS, workers, message_times.Cluster(message_times.Link(latency, message_times.rate(RATE)))
        )
    return Run(
        f"of {workers}", workers, 1, 32, seconds, RATE if workers > 1 else "", PARAMETERS, overlap=False, images=1500
    )


@pytest.mark.thorough
def test_known_parameters_lie_in_their_bands_in_95_of_100_draws():
    random = numpy.random.default_rng(1)
    truth = {"step of one worker": 0.06, "overhead of a step": OVERHEAD, "latency of a message": LATENCY}
    expected = slowest_worker.expected_maximum(one_step(random, 200_000), 64) + OVERHEAD
    expected += message_times.ring(
        4 * PARAMETERS, 64, message_times.Cluster(message_times.Link(LATENCY, message_times.rate(RATE)))
    )
    hits = dict.fromkeys([*truth, "step of 64 workers"], 0)
    for draw in range(100):
        model = fit([synthetic(random, workers) for workers in (1, 2, 4, 8)], seed=draw)
        for name, value in truth.items():
            _, low, high = model.intervals()[name]
            hits[name] += low <= value <= high
        low, high = numpy.quantile(predict(model, 64, Plan(message_times.rate(RATE))).step, BAND)
        hits["step of 64 workers"] += low <= expected <= high
    assert min(hits.values()) >= 95, hits


def test_runs_of_one_number_of_workers_cannot_tell_overhead_from_latency_and_the_band_shows_it():
    random = numpy.random.default_rng(2)
    runs = [synthetic(random, workers) for workers in (1, 2, 8, 16)]
    unclear, clear = fit(runs[:2]), fit(runs)
    assert (unclear.told_apart, clear.told_apart) == (False, True)
    for name, truth in (("overhead of a step", OVERHEAD), ("latency of a message", LATENCY)):
        _, low, high = unclear.intervals()[name]
        assert low <= truth <= high
    wide, narrow = (
        numpy.ptp(numpy.quantile(predict(model, 64, Plan(message_times.rate(RATE))).step, BAND))
        for model in (unclear, clear)
    )
    assert wide > 3 * narrow


def measured(random, ranks, share=1.0, latency=LATENCY):
    """A MeasuredNetwork of which all-reduces get `share` of RATE."""
    cluster = message_times.Cluster(message_times.Link(latency, share * message_times.rate(RATE)))
    times = {
        size: [message_times.ring(size, ranks, cluster) * random.uniform(0.99, 1.01) for _ in range(10)]
        for size in (64, 4096, 2**18, 2**20)
    }
    return MeasuredNetwork(ranks, ranks, RATE, times)


@pytest.mark.thorough
def test_a_network_measured_with_more_than_two_ranks_tells_overhead_from_latency():
    random = numpy.random.default_rng(3)
    model = fit([synthetic(random, 1), synthetic(random, 2, latency=0.01)], [measured(random, 4, latency=0.01)])
    found = {name: median for name, (median, *_) in model.intervals().items()}
    assert model.told_apart
    assert found["latency of a message"] == pytest.approx(0.01, rel=0.03)
    assert found["overhead of a step"] == pytest.approx(OVERHEAD, abs=0.002)
    assert fit([synthetic(random, 1), synthetic(random, 2)], [measured(random, 4, 0.8)]).intervals()[
        "share of the network's rate"
    ][0] == pytest.approx(0.8, rel=0.03)


def test_a_network_measured_with_two_ranks_only_limits_the_latency():
    random = numpy.random.default_rng(9)
    runs = [synthetic(random, 1), synthetic(random, 2)]
    model = fit(runs, [measured(random, 2)])
    _, low, high = model.intervals()["latency of a message"]
    assert not model.told_apart
    assert low <= LATENCY <= 1.03 * high
    assert high < fit(runs).intervals()["latency of a message"][2] / 2


def test_a_size_of_the_gradients_that_contradicts_the_runs_is_refused():
    random = numpy.random.default_rng(10)
    with pytest.raises(RunsError, match="record 250,000 parameters: leave out --parameters"):
        fit([synthetic(random, 1), synthetic(random, 2)], parameters=25_000_000)


@pytest.mark.parametrize("ranks", [1, 2, 16, 256])
def test_the_expected_maximum_is_that_of_simulated_ranks(ranks):
    random = numpy.random.default_rng(4)
    simulated = one_step(random, (2000, ranks)).max(axis=1).mean()
    measured = [slowest_worker.expected_maximum(one_step(random, 300), ranks) for _ in range(20)]
    assert numpy.mean(measured) == pytest.approx(simulated, rel=0.03)


def test_the_slowest_of_many_is_slower_than_any_measured_step():
    sample = one_step(numpy.random.default_rng(5), 50)
    found = slowest_worker.expected_maximum(sample, [1, 10, 100, 1000, 4000])
    assert (numpy.diff(found) > 0).all() and found[-1] > sample.max()
    assert slowest_worker.expected_maximum([0.25], 512) == 0.25


def test_a_bigger_batch_takes_longer_by_its_share_alone():
    random = numpy.random.default_rng(6)
    small, big = synthetic(random, 1), synthetic(random, 1)
    big.batchsize, big.steps = 64, small.steps + 0.03
    model = fit([small, big, synthetic(random, 2)])
    assert predict(model, 1, Plan(batchsize=96)).step.mean() == pytest.approx(small.step + 0.06, rel=0.02)


def test_parts_of_a_step_follow_the_plan():
    random = numpy.random.default_rng(7)
    model = fit([synthetic(random, workers) for workers in (1, 2, 4)])
    rate = message_times.rate(RATE)
    plain, half, hidden = (
        predict(model, 8, plan) for plan in (Plan(rate), Plan(rate, dtype="float16"), Plan(rate, double_buffering=True))
    )
    latency = 14 * model.latency.mean()
    assert half.communication.mean() - latency == pytest.approx((plain.communication.mean() - latency) / 2, rel=0.01)
    assert hidden.communication.mean() == pytest.approx(plain.communication.mean() - plain.compute.mean(), rel=0.01)
    assert predict(model, 1, Plan(rate)).communication.sum() == 0


def test_buckets_are_hidden_as_a_schedule_drawn_by_hand_says():
    # backward from 1 s to 3 s fills two buckets, at 2 s and 3 s
    assert message_times.exposed(3, [0.5, 0.25]) == pytest.approx(0.25)  # the first is hidden whole
    assert message_times.exposed(3, [1.5, 1]) == pytest.approx(1.5)  # the first delays the second
    assert message_times.exposed(3, [1.5, 1], overlap=False) == pytest.approx(2.5)
    assert message_times.exposed(3, [1.5, 1], double_buffering=True) == 0
    assert message_times.exposed(2, [1.5, 1], double_buffering=True) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        ([], "no runs to learn from"),
        ([1], "only one run, of one worker, which do not show what communication costs: submit run_multi_gpu_training"),
        ([2], "only one run, of 2 workers, which do not show how long one worker computes: submit run_single_gpu"),
        ([2, 4], "all runs are of 2 workers"),
    ],
)
def test_too_few_runs_are_refused_with_the_command_that_makes_more(runs, sentence):
    with pytest.raises(RunsError, match=sentence):
        fit([synthetic(numpy.random.default_rng(8), workers) for workers in runs])


def test_the_critical_batch_is_found_again():
    batches = [16, 64, 256]
    assert batch_size.critical_batch(batches, batch_size.images_to_accuracy(10_000, 128, batches)) == pytest.approx(
        (10_000, 128)
    )
    assert batch_size.critical_batch([16, 64], [1000, 900]) == (950, float("inf"))
    with pytest.raises(ValueError):
        batch_size.critical_batch([64, 64], [1000, 1100])
