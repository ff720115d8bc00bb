"""The checks are right about the solutions, the untouched exercises and the known answers, as `python -m grader verify`
finds out; and no verdict is luck."""

import pytest

from answers import known, seeds, verify
from grader.course import UNITS

PARTS = [
    pytest.param(
        unit,
        part,
        id=f"{unit}-{part.file.split('/', 1)[1]}",
        # each contest trains for a minute, and tests/grader/test_contest.py has a quick one
        marks=[pytest.mark.thorough] if any(check.runner for check in part.checks) else [],
    )
    for unit, parts in UNITS.items()
    for part in parts
]
SAMPLE = 23  # every so many known answers; `python -m grader verify --seeds 200` takes all
SEEDS = range(known.SEED + 1, known.SEED + 4)  # under the first one, the tests above judge them all


@pytest.mark.parametrize(("unit", "part"), PARTS)
def test_checks_are_right_about_a_wrong_answer_for_each_criterion_and_a_right_one_for_each_gap(unit, part, server_for):
    assert list(verify.problems(unit, part, server_for(part.file), known.first_of)) == []


@pytest.mark.thorough
@pytest.mark.parametrize(("unit", "part"), PARTS)
def test_checks_are_right_about_all_known_answers(unit, part, server_for):
    assert list(verify.problems(unit, part, server_for(part.file))) == []


@pytest.mark.parametrize("unit", UNITS)
def test_every_criterion_and_every_gap_has_known_answers_and_nothing_is_for_a_gap_that_is_not_there(unit):
    assert list(verify.lacking(unit, UNITS[unit])) == []


def test_the_known_answers_stay_few():
    """answers/README.md says when one may join."""
    files = sorted(known.ANSWERS.rglob("*.toml"))
    assert (
        sum(len(kind) for unit, parts in UNITS.items() for part in parts for kind in known.of_part(unit, part)) <= 1200
    )
    assert sum(len(file.read_text().splitlines()) for file in files) <= 12_000


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("unit", "part", "answer"),
    [pytest.param(*one, id=f"{one[0]} {one[2].name}") for one in list(seeds.known())[::SAMPLE]],
)
def test_a_verdict_does_not_depend_on_the_seed(unit, part, answer, server_for):
    assert seeds.unexpected(unit, part, answer, SEEDS, server_for(part.file)) == {}
