"""Every plausible wrong answer is caught by the criterion meant for it, with its message; right ones written otherwise pass."""

import functools
from dataclasses import replace
from unittest import mock

import pytest
from known_under_seeds import LIMITS, TOGETHER, TOGETHER_WHOLE, entries, may_fail, unexpected

from grader import exercises, judging, observing
from grader.instructors import hidden
from grader.course import UNITS, name_of_gap
from grader.judging import judge
from grader.instructors.known_answers import known, solved
from grader.verdict import FAILED, NOT_ATTEMPTED, PASSED

SEED = 0  # of the inputs; `make bench ARGS=seeds` judges under many
LEAST = {"communication": (1, 0)}  # known answers that each gap has at least: (wrong, right); of other units' gaps, (5, 4)
PARTS = [pytest.param(unit, part, id=f"{unit}-{part.track or part.file}") for unit, parts in UNITS.items() for part in parts]


def of_part(unit, part, kind):
    """The mutants (0) or the variants (1) of a file."""
    return [entry for entry in known(unit, part.folder)[kind] if entry["gap"] in {check.gap for check in part.checks}]


def cases(kind):
    return [
        pytest.param(unit, part, entry, id=f"{unit}-{part.track}-{entry['gap']}-{entry['name']}")
        for unit, parts in UNITS.items()
        for part in parts
        for entry in of_part(unit, part, kind)
    ]


def verdicts(unit, part, text, server, gaps=None, cases=None):
    """The verdicts on a file, or on some of its gaps."""
    checks = tuple(check for check in part.checks if gaps is None or check.gap in gaps)
    only = type(part)(part.file, part.track, checks)
    return list(judge(unit, (only,), lambda file: text, server, cases, seed=SEED))


@pytest.fixture(scope="module")
def judged(server_for):
    """A function: the verdicts on a variant. It stands in a file with variants of the other gaps, whose verdicts are kept."""

    @functools.cache
    def of_file(unit, file, number):
        part = next(part for part in UNITS[unit] if part.file == file)
        code = {gap: of_gap[number]["code"] for gap, of_gap in variants(unit, part).items() if number < len(of_gap)}
        return verdicts(unit, part, solved(file, **code), server_for(file), code, hidden.cases())

    def of_variant(unit, part, variant):
        found = of_file(unit, part.file, variants(unit, part)[variant["gap"]].index(variant))
        return [verdict for verdict in found if verdict.gap == name_of_gap(unit, part.file, variant["gap"])]

    return of_variant


def variants(unit, part):
    """{gap: its variants}."""
    found = {}
    for variant in of_part(unit, part, 1):
        found.setdefault(variant["gap"], []).append(variant)
    return found


@pytest.fixture(scope="module")
def in_bulk(server_for):
    """A function: {criterion: (status, message)} for a mutant that ran in the same ranks as the other mutants of its check, as the gaps of
    a file do. Empty for a mutant that does not share its ranks with others, since it ends them or hangs."""

    @functools.cache
    def of_check(unit, file, gap):
        part = next(part for part in UNITS[unit] if part.file == file)
        [check] = [check for check in part.checks if check.gap == gap]
        mutants = [mutant for mutant in of_part(unit, part, 0) if mutant.get("check", mutant["gap"]) == gap and "status" not in mutant]
        given = {f"{mutant['gap']} {mutant['name']}": judging._source(check, part, solved(file, **{mutant["gap"]: mutant["code"]})) for mutant in mutants}
        cases = judging._cases(unit, check, (), SEED)
        checks, sources = [replace(check, gap=name) for name in given], {name: source for name, (source, _, _) in given.items()}
        with mock.patch.object(observing, "LIMITS", LIMITS):
            seen = together(checks, cases, sources, server_for(file), max(1, (TOGETHER_WHOLE if check.whole else TOGETHER) // len(cases)))
        judged = {name: judging._apply(check, cases, given[name], server_for(file), None, of_mutant)[0] for name, of_mutant in seen.items()}
        return {name: {criterion.title: one[:2] for criterion, one in zip(check.criteria, of_mutant)} for name, of_mutant in judged.items()}

    return lambda unit, part, mutant: of_check(unit, part.file, mutant.get("check", mutant["gap"])).get(f"{mutant['gap']} {mutant['name']}", {})


def together(checks, cases, sources, server, most):
    """As observing.together, for checks with the same cases, at most so many at once. If one of them ends the ranks, the halves run."""
    if len(checks) > most:
        half = min(most, len(checks) // 2)
        return together(checks[:half], cases, sources, server, most) | together(checks[half:], cases, sources, server, most)
    seen = observing.together(checks, {check.gap: cases for check in checks}, sources, server, None)
    return seen if seen or len(checks) < 4 else together(checks, cases, sources, server, len(checks) // 2)


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "part", "mutant"), cases(0))
def test_a_mutant_is_caught_by_its_criterion_with_its_message(unit, part, mutant, in_bulk, server_for):
    name = mutant.get("check", mutant["gap"])
    [check] = [check for check in part.checks if check.gap == name]
    found = in_bulk(unit, part, mutant)
    if not is_caught(found, mutant, check):
        text = solved(part.file, **{mutant["gap"]: mutant["code"]})
        found = {one.check: (one.status, one.message) for one in verdicts(unit, part, text, server_for(part.file), [name])}
    assert is_caught(found, mutant, check), found


def is_caught(found, mutant, check):
    """Whether the criterion that is meant fails with the message, and no other one that may not fail. found: {criterion: (status, message)}."""
    status, message = found.get(mutant["criterion"], ("", ""))
    others = {criterion for criterion, (status, _) in found.items() if status != PASSED}
    return status == mutant.get("status", FAILED) and mutant["message"] in message and others <= may_fail(mutant, check)


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "part", "variant"), cases(1))
def test_a_right_answer_written_otherwise_gets_full_marks(unit, part, variant, judged):
    found = judged(unit, part, variant)
    assert found
    for verdict in found:
        assert verdict.status == PASSED, verdict


@pytest.mark.parametrize(("unit", "part"), PARTS)
def test_the_solution_gets_full_marks(unit, part, server_for):
    for verdict in verdicts(unit, part, solved(part.file), server_for(part.file), cases=hidden.cases()):
        assert verdict.status == PASSED, verdict


@pytest.mark.parametrize(("unit", "part"), PARTS)
def test_the_untouched_exercise_gets_nothing_and_is_told_so(unit, part, server_for):
    from grader.exercises import given_out

    for verdict in verdicts(unit, part, given_out(part.file).text, server_for(part.file)):
        assert (verdict.status, verdict.points) == (NOT_ATTEMPTED, 0)


@pytest.mark.parametrize(("unit", "part"), PARTS)
def test_every_gap_has_known_answers_of_either_kind(unit, part):
    """Predictions, too."""
    counts = {
        check.gap: [sum(entry["gap"] == check.gap for entry in of_part(unit, part, kind)) for kind in (0, 1)]
        for check in part.checks
        if check.gap in {gap.name for gap in exercises.given_out(part.file).gaps}
    }
    wrong, right = LEAST.get(unit, (5, 4))
    assert {gap: count for gap, count in counts.items() if count[0] < wrong or count[1] < right} == {}


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
def test_a_verdict_does_not_depend_on_the_seed(unit, part, check, entry, wrong, server_for):
    assert unexpected(unit, part, check, entry, wrong, range(4), server_for(part.file)) == {}
