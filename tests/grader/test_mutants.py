"""Every plausible wrong answer is caught by the criterion meant for it, with its message; right ones written otherwise pass."""

import pytest
from known_under_seeds import entries, may_fail, unexpected

from grader.instructors import hidden
from grader.course import UNITS
from grader.judging import judge
from grader.instructors.known_answers import known, solved
from grader.verdict import FAILED, NOT_ATTEMPTED, PASSED

SEED = 0  # of the inputs; `make bench ARGS=seeds` judges under many
PARTS = [pytest.param(unit, part, id=f"{unit}-{part.track or part.file}") for unit, parts in UNITS.items() for part in parts]


def cases(kind):
    return [
        pytest.param(unit, part, entry, id=f"{unit}-{part.track}-{entry['gap']}-{entry['name']}")
        for unit, parts in UNITS.items()
        for part in parts
        for entry in known(unit, part.folder)[kind]
        if entry["gap"] in {check.gap for check in part.checks}
    ]


def verdicts(unit, part, text, server, gap=None, cases=None):
    checks = tuple(check for check in part.checks if gap in (None, check.gap))
    only = type(part)(part.file, part.track, checks)
    return list(judge(unit, (only,), lambda file: text, server, cases, seed=SEED))


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "part", "mutant"), cases(0))
def test_a_mutant_is_caught_by_its_criterion_with_its_message(unit, part, mutant, server):
    found = verdicts(unit, part, solved(part.file, **{mutant["gap"]: mutant["code"]}), server, mutant.get("check", mutant["gap"]))
    caught = next(verdict for verdict in found if verdict.check == mutant["criterion"])
    assert caught.status == mutant.get("status", FAILED), caught
    assert mutant["message"] in caught.message
    [check] = [check for check in part.checks if check.gap == mutant.get("check", mutant["gap"])]
    assert {verdict.check for verdict in found if verdict.status != PASSED} <= may_fail(mutant, check)


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "part", "variant"), cases(1))
def test_a_right_answer_written_otherwise_gets_full_marks(unit, part, variant, server):
    for verdict in verdicts(unit, part, solved(part.file, **{variant["gap"]: variant["code"]}), server, variant["gap"], hidden.cases()):
        assert verdict.status == PASSED, verdict


@pytest.mark.parametrize(("unit", "part"), PARTS)
def test_the_solution_gets_full_marks(unit, part, server):
    for verdict in verdicts(unit, part, solved(part.file), server, cases=hidden.cases()):
        assert verdict.status == PASSED, verdict


@pytest.mark.parametrize(("unit", "part"), PARTS)
def test_the_untouched_exercise_gets_nothing_and_is_told_so(unit, part, server):
    from grader.exercises import given_out

    for verdict in verdicts(unit, part, given_out(part.file).text, server):
        assert (verdict.status, verdict.points) == (NOT_ATTEMPTED, 0)


def test_every_criterion_has_a_mutant():
    """In one of the units, where several have the same."""
    meant, there_are = set(), set()
    for unit, parts in UNITS.items():
        for part in parts:
            meant |= {(part.track, mutant.get("check", mutant["gap"]), mutant["criterion"]) for mutant in known(unit, part.folder)[0]}
            there_are |= {(part.track, check.gap, criterion.title) for check in part.checks for criterion in check.criteria}
    assert there_are - meant == set()


def test_hidden_cases_are_of_checks_that_there_are():
    there_are = {(unit, part.folder, check.gap) for unit, parts in UNITS.items() for part in parts for check in part.checks}
    assert hidden.cases().keys() <= there_are


@pytest.mark.parametrize("unit", UNITS)
def test_both_tracks_of_a_unit_are_worth_the_same(unit):
    points = {}
    for part in UNITS[unit]:
        if part.track:
            own = sum(criterion.points for check in part.checks for criterion in check.criteria)
            points[part.track] = points.get(part.track, 0) + own
    assert len(set(points.values())) <= 1, points


SAMPLE = 23  # every so many known answers; `make bench ARGS=seeds` takes all, and more seeds


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "part", "check", "entry", "wrong"), [pytest.param(*one, id=f"{one[0]}-{one[3]['name']}") for one in list(entries())[::SAMPLE]])
def test_a_verdict_does_not_depend_on_the_seed(unit, part, check, entry, wrong, server):
    assert unexpected(unit, part, check, entry, wrong, range(4), server) == {}
