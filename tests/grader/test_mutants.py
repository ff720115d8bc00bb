"""Every plausible wrong answer is caught by the criterion meant for it, with its message; right ones written otherwise
pass."""

import functools
from collections import Counter

import pytest
from known_under_seeds import entries, unexpected

from grader.course import UNITS, name_of_gap
from grader.exercises import given_out
from grader.instructors import hidden, verify
from grader.instructors import known_answers as known
from grader.verdict import NOT_ATTEMPTED, PASSED

LEAST = 5, 4  # known answers that each gap has: wrong ones, right ones
PARTS = [
    pytest.param(unit, part, id=f"{unit}-{part.track or part.file}") for unit, parts in UNITS.items() for part in parts
]


def cases(kind):
    """The mutants (0) or the variants (1)."""
    return [
        pytest.param(unit, part, entry, id=f"{unit}-{part.track}-{entry['gap']}-{entry['name']}")
        for unit, parts in UNITS.items()
        for part in parts
        for entry in known.of_part(unit, part)[kind]
    ]


@pytest.fixture(scope="module")
def in_bulk(server_for):
    """A function: what all mutants (0) or variants (1) of a file get that run together; see
    known_answers.mutants_in_bulk."""

    @functools.cache
    def of_file(unit, file, kind):
        part = next(part for part in UNITS[unit] if part.file == file)
        return (known.mutants_in_bulk, known.variants_in_bulk)[kind](unit, part, server_for(file))

    return lambda unit, part, kind: of_file(unit, part.file, kind)


@pytest.fixture(scope="module")
def in_its_layer(server_for):
    """A function: the verdicts on a variant, which stands in a file with variants of the other gaps, whose verdicts are
    kept."""

    @functools.cache
    def of_layer(unit, file, number):
        part = next(part for part in UNITS[unit] if part.file == file)
        return known.judged_layer(unit, part, known.layers(unit, part)[number], server_for(file))

    def of_variant(unit, part, variant):
        number = next(number for number, layer in enumerate(known.layers(unit, part)) if variant in layer)
        return [
            verdict
            for verdict in of_layer(unit, part.file, number)
            if verdict.gap == name_of_gap(unit, part.file, variant["gap"])
        ]

    return of_variant


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "part", "mutant"), cases(0))
def test_a_mutant_is_caught_by_its_criterion_with_its_message(unit, part, mutant, in_bulk, server_for):
    check, found = known.check_of(part, mutant), in_bulk(unit, part, 0).get((mutant["gap"], mutant["name"]), {})
    if not known.is_caught(found, mutant, check):
        found = known.mutant_by_itself(unit, part, mutant, server_for(part.file))
    assert known.is_caught(found, mutant, check), found


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "part", "variant"), cases(1))
def test_a_right_answer_written_otherwise_gets_full_marks(unit, part, variant, in_bulk, in_its_layer):
    if not known.is_right(in_bulk(unit, part, 1), variant):
        found = in_its_layer(unit, part, variant)
        assert found
        for verdict in found:
            assert verdict.status == PASSED, verdict


@pytest.mark.parametrize(
    ("unit", "part"),
    [
        pytest.param(*one.values, id=one.id, marks=pytest.mark.slow if one.values[1].file.endswith(".py") else ())
        for one in PARTS
    ],
)
def test_the_solution_gets_full_marks(unit, part, server_for):
    for verdict in known.verdicts(
        unit, part, known.solved(part.file), server_for(part.file), cases=hidden.cases(), site=known.SITE
    ):
        assert verdict.status == PASSED, verdict


@pytest.mark.parametrize(("unit", "part"), PARTS)
def test_the_untouched_exercise_gets_nothing_and_is_told_so(unit, part, server_for):
    for verdict in known.verdicts(unit, part, given_out(part.file).text, server_for(part.file)):
        assert (verdict.status, verdict.points) == (NOT_ATTEMPTED, 0)


@pytest.mark.parametrize(("unit", "part"), PARTS)
def test_every_gap_has_known_answers_of_either_kind(unit, part):
    """Predictions, too."""
    counts = {
        gap.name: [sum(entry["gap"] == gap.name for entry in entries) for entries in known.of_part(unit, part)]
        for gap in given_out(part.file).gaps
    }
    wrong, right = LEAST
    assert {gap: count for gap, count in counts.items() if count[0] < wrong or count[1] < right} == {}


@pytest.mark.parametrize(("unit", "part"), PARTS)
def test_no_two_known_answers_of_a_gap_have_one_name(unit, part):
    """What they get is kept by their names."""
    names = [
        (kind, entry["gap"], entry["name"])
        for kind, entries in enumerate(known.of_part(unit, part))
        for entry in entries
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []


@pytest.mark.parametrize("unit", UNITS)
def test_every_criterion_has_a_mutant_and_nothing_is_for_a_gap_that_is_not_there(unit):
    assert list(verify.lacking(unit, UNITS[unit])) == []


SAMPLE = 23  # every so many known answers; `make bench ARGS=seeds` takes all, and more seeds
SEEDS = range(known.SEED + 1, known.SEED + 4)  # under the first one, the tests above judge them all


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "part", "check", "entry", "wrong"),
    [pytest.param(*one, id=f"{one[0]}-{one[3]['name']}") for one in list(entries())[::SAMPLE]],
)
def test_a_verdict_does_not_depend_on_the_seed(unit, part, check, entry, wrong, server_for):
    assert unexpected(unit, part, check, entry, wrong, SEEDS, server_for(part.file)) == {}
