"""Observations are compared with the form that they should have, and a property counts only beside what proves that
work was done."""

import numpy
import pytest

from grader import judging
from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array, Counts, fits
from grader.course import UNITS
from grader.sandbox import Outcome, RankOutcome
from grader.verdict import FAILED, PASSED

CHECKS = [
    pytest.param(check, id=f"{unit}-{part.track}-{check.gap}")
    for unit, parts in UNITS.items()
    for part in parts
    for check in part.checks
]


@pytest.mark.parametrize(
    ("thing", "form"),
    [
        (3, int),
        (3, float),
        (2.5, float),
        (True, bool),
        ("a", str),
        (None, object),
        ([], [int]),
        ([1, 2], [int]),
        ([1, "a"], (int, str)),
        ({"a": [1.0]}, {"a": (float,)}),
        ({"a": 1, "b": 2}, Counts(int)),
        (numpy.zeros((2, 3)), Array()),
        (numpy.zeros((2, 3)), Array((2, None))),
    ],
)
def test_what_has_the_form_fits(thing, form):
    assert fits(thing, form)


@pytest.mark.parametrize(
    ("thing", "form"),
    [
        (2.5, int),
        (True, int),
        (True, float),
        ("3", float),
        (None, float),
        ([1.5], [int]),
        ([], (int,)),
        ([1, 2, 3], (int, int)),
        (1, [int]),
        ({}, {"a": int}),
        ({"a": 1, "b": 1}, {"a": int}),
        ({"a": "1"}, Counts(int)),
        ([0.0], Array()),
        (numpy.zeros(3), Array((2,))),
        (numpy.zeros((3, 0)), Array((3,))),
    ],
)
def test_what_has_another_form_does_not(thing, form):
    assert not fits(thing, form)


def applied(seen, *judged, observed=None):
    """(status, message) of each criterion for what two ranks gave in one case."""
    check = Check("gap", "module:probe", ({"count": 2},), judged, observed=observed)
    outcome = Outcome([RankOutcome(None, one) for one in seen])
    found, odd = judging._apply(
        check, check.cases, ({"file": "a.py"}, None, ""), None, None, ([(check.cases[0], seen, outcome)], None)
    )
    return [(status, message) for status, message, _ in found], odd


def nothing_wrong(seen, case, expected):
    return None


def test_too_few_observations_pass_no_criterion():
    form = {"observed": lambda case: {"found": (float,) * case["count"]}}
    right, short = {"found": [1.0, 2.0]}, {"found": []}
    assert applied([right, right], Criterion("one", 1, nothing_wrong, ""), **form) == ([(PASSED, "")], "")
    [(status, message)], odd = applied([right, short], Criterion("one", 1, nothing_wrong, ""), **form)
    assert status == FAILED and odd and "too few values" in message


def test_a_property_counts_only_beside_the_criterion_that_it_needs():
    work = Criterion("work", 2, lambda seen, case, expected: None if seen[0]["sum"] else "nothing is added up", "")
    equal = Criterion("equal on all ranks", 1, lambda seen, case, expected: None, "", needs="work")
    assert [status for status, _ in applied([{"sum": 3}], work, equal)[0]] == [PASSED, PASSED]
    [(_, why), (status, message)], _ = applied([{"sum": 0}], work, equal)
    assert why == "nothing is added up"
    assert (status, message) == (FAILED, 'this counts only if "work" passes, too')


def test_a_property_that_does_not_count_names_the_criterion_that_failed_by_itself():
    work = Criterion("work", 2, lambda seen, case, expected: "nothing is added up", "")
    equal = Criterion("equal on all ranks", 1, nothing_wrong, "", needs="work")
    fast = Criterion("fast", 1, nothing_wrong, "", needs="equal on all ranks")
    found, _ = applied([{"sum": 0}], work, equal, fast)
    assert [message for _, message in found[1:]] == ['this counts only if "work" passes, too'] * 2


def test_ranks_whose_numbers_are_nan_are_named_and_not_compared_with_each_other():
    assert criteria.equal_on_all_ranks([[1.0], [numpy.nan], [numpy.inf]], "parameters").startswith(
        "parameters of ranks 1, 2 are infinite or NaN"
    )
    assert criteria.equal_on_all_ranks([[numpy.nan], [numpy.nan]], "parameters").startswith(
        "parameters of ranks 0, 1 are infinite or NaN"
    )


@pytest.mark.parametrize("check", CHECKS)
def test_what_a_criterion_needs_is_another_criterion_of_its_check(check):
    titles = [criterion.title for criterion in check.criteria]
    assert all(one.needs in {"", *titles} - {one.title} for one in check.criteria)


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_that_runs_code_names_the_form_of_what_is_observed(check):
    assert callable(check.probe) or check.observed(check.cases[0] | {"unit": "any"})
