"""Observations are compared with the form that they should have, and a property counts only beside what proves that
work was done."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader import judging
from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array, Counts, fits
from grader.course import UNITS
from grader.sandbox import Outcome, RankOutcome
from grader.units.model_parallel import products
from grader.verdict import FAILED, PASSED

KINDS = {int: st.integers(), float: st.floats() | st.integers(), bool: st.booleans(), str: st.text(), object: st.none()}
FORMS = st.recursive(
    st.sampled_from([*KINDS]) | st.builds(Array, st.none() | st.lists(st.integers(0, 3), max_size=3).map(tuple)),
    lambda forms: (
        forms.map(lambda form: [form])
        | st.lists(forms, max_size=3).map(tuple)
        | st.dictionaries(st.text(), forms, max_size=3)
        | st.builds(Counts, forms)
    ),
    max_leaves=5,
)


def things_of(form):
    """Things that have a form."""
    match form:
        case Array():
            return st.just(numpy.zeros(2 if form.shape is None else form.shape))
        case Counts():
            return st.dictionaries(st.text(), things_of(form.form), max_size=3)
        case dict():
            return st.fixed_dictionaries({name: things_of(inner) for name, inner in form.items()})
        case tuple():
            return st.tuples(*map(things_of, form)).map(list)
        case list():
            return st.lists(things_of(form[0]), max_size=3)
    return KINDS[form]


def spoiled(thing):
    """The thing with each part of it, and the whole, replaced by what has no form but `object`."""
    yield ...
    for place in thing if isinstance(thing, dict) else range(len(thing)) if isinstance(thing, list) else ():
        for part in spoiled(thing[place]):
            changed = thing.copy()
            changed[place] = part
            yield changed


def strict(form):
    """A form in which nothing may be anything."""
    return "object" not in str(form)


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(st.data(), FORMS)
def test_what_has_the_form_fits_and_what_is_another_thing_somewhere_does_not(data, form):
    thing = data.draw(things_of(form))
    assert fits(thing, form)
    assert not strict(form) or not any(fits(other, form) for other in spoiled(thing))


@pytest.mark.parametrize(
    ("thing", "form"),
    [
        (2.5, int),
        (True, int),
        (True, float),
        ("3", float),
        ([], (int,)),
        ([1, 2, 3], (int, int)),
        (1, [int]),
        ({}, {"a": int}),
        ({"a": 1, "b": 1}, {"a": int}),
        ([0.0], Array()),
        (numpy.zeros(3), Array((2,))),
        (numpy.zeros((2, 3)), Array((3, None))),
        (numpy.zeros((3, 0)), Array((3,))),
    ],
)
def test_what_has_another_form_does_not_fit(thing, form):
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
    assert applied([right, right], Criterion("one", "one", 1, nothing_wrong, ""), **form) == ([(PASSED, "")], "")
    [(status, message)], odd = applied([right, short], Criterion("one", "one", 1, nothing_wrong, ""), **form)
    assert status == FAILED and odd and "too few values" in message


def test_a_result_of_another_shape_is_a_failed_criterion_and_no_fault_of_the_grader():
    form = {"observed": lambda case: {"found": Array((case["count"],)), "steps": [Array((None,))]}}
    right = {"found": numpy.zeros(2), "steps": [numpy.zeros(7)]}
    one = Criterion("one", "one", 1, nothing_wrong, "")
    assert applied([right, right], one, **form) == ([(PASSED, "")], "")
    for wrong, shapes in (
        ({"found": numpy.zeros(4)}, "(4,), but it should be (2,)"),
        ({"steps": [numpy.zeros((2, 3))]}, "(2, 3), but it should be (*,)"),
    ):
        [(status, message)], odd = applied([right, right | wrong], one, **form)
        assert (status, odd) == (FAILED, "") and shapes in message
    # a list that is too short has no shape: a grader's mistake can cause it
    assert applied([right, {"found": numpy.zeros(4), "steps": numpy.zeros(7)}], one, **form)[1]


@pytest.mark.parametrize(
    ("gap", "wrong", "said"),
    [
        (
            "enter_backward",
            {"found": numpy.zeros((3, 2))},
            "should have the shape of `gradient`, (3, 4): do not divide",
        ),
        ("leave_forward", {"found": numpy.zeros((3, 8))}, "added, not joined"),
        (
            "leave_backward",
            {"found": numpy.zeros((3, 2))},
            "should have the shape of `gradient`, (3, 4): do not divide",
        ),
        ("split_attention", {"bias": numpy.zeros(4)}, "has the shape (4,), but the whole bias has (8,)"),
    ],
)
def test_a_part_of_a_tensor_where_the_whole_is_needed_is_named_by_its_shape(gap, wrong, said):
    check = next(check for check in products.CHECKS["pytorch/products.py"] if check.gap == gap)
    case, whole = check.cases[0], numpy.ones((2, 3, 4))
    seen = [{"found": whole[0], "changed": False, "sent": [], "trained": True} | wrong] * 2
    expected = {"own": whole, "sum": 2 * whole, "all": 2 * whole, "bias": numpy.ones(8)}
    judged = check.criteria[0 if "found" in wrong else -1].judge
    assert said in judged(seen, case, expected)
    of_form = check.observed(case)
    assert all(fits(value, of_form[name]) for name, value in wrong.items())


def test_a_property_counts_only_beside_the_criterion_that_it_needs():
    work = Criterion(
        "work", "work", 2, lambda seen, case, expected: None if seen[0]["sum"] else "nothing is added up", ""
    )
    equal = Criterion("equal_all_ranks", "equal on all ranks", 1, lambda seen, case, expected: None, "", needs="work")
    assert [status for status, _ in applied([{"sum": 3}], work, equal)[0]] == [PASSED, PASSED]
    [(_, why), (status, message)], _ = applied([{"sum": 0}], work, equal)
    assert why == "nothing is added up"
    assert (status, message) == (FAILED, 'this counts only if "work" passes, too')


def test_a_property_that_does_not_count_names_the_criterion_that_failed_by_itself():
    work = Criterion("work", "work", 2, lambda seen, case, expected: "nothing is added up", "")
    equal = Criterion("equal_all_ranks", "equal on all ranks", 1, nothing_wrong, "", needs="work")
    fast = Criterion("fast", "fast", 1, nothing_wrong, "", needs="equal_all_ranks")
    found, _ = applied([{"sum": 0}], work, equal, fast)
    assert [message for _, message in found[1:]] == ['this counts only if "work" passes, too'] * 2


def test_ranks_whose_numbers_are_nan_are_named_and_not_compared_with_each_other():
    assert criteria.equal_on_all_ranks([[1.0], [numpy.nan], [numpy.inf]], "parameters").startswith(
        "parameters are infinite or NaN on ranks 1, 2"
    )
    assert criteria.equal_on_all_ranks([[numpy.nan], [numpy.nan]], "parameters").startswith(
        "parameters are infinite or NaN on ranks 0, 1"
    )


def test_criteria_need_others_of_their_check_and_each_check_names_the_form_of_what_it_observes():
    checks = [check for parts in UNITS.values() for part in parts for check in part.checks]
    for check in checks:
        ids = [criterion.id for criterion in check.criteria]
        assert len(ids) == len(set(ids)), check.gap
        assert all(one.needs in {"", *ids} - {one.id} for one in check.criteria), check.gap
        assert check.observed(check.cases[0] | {"unit": "any"}), check.gap
