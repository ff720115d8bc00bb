"""Small trainings with big batches: they follow their plan, and are evaluated where the curve says so."""

import pytest

from handson.notebook import multi_gpu
from handson.notebook.multi_gpu import Plan, evaluated

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def curves():
    plans = {
        "learns": Plan(64, [0.02] * 30),
        "stands still": Plan(64, [0.02] + [0.0] * 29),
        "an epoch": Plan(256, [0.02] * 6),
    }
    return multi_gpu.train(plans, seeds=2)


def test_every_seed_has_a_curve_that_ends_with_the_last_update(curves):
    for curve in curves.values():
        assert curve.errors.shape == (2, len(curve.updates)) and curve.updates[-1] == len(curve.plan.rates)
    assert (curves["learns"].errors[0] != curves["learns"].errors[1]).any()


def test_epochs_are_counted_in_the_updates_that_one_takes(curves):
    assert curves["an epoch"].epochs[-1] == 1  # 1,500 images are 5 whole batches of 256, and a part of one


def test_the_rates_of_the_plan_are_those_of_the_training(curves):
    assert curves["learns"].mean[-1] < 0.4 < curves["stands still"].mean[-1]


def test_short_runs_are_evaluated_after_every_update_and_long_ones_now_and_then():
    assert evaluated(3).tolist() == [1, 2, 3]
    assert len(evaluated(1000)) <= multi_gpu.POINTS and evaluated(1000)[-1] == 1000
