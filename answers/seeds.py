"""Judges each known answer under many seeds: a verdict that depends on the seed is luck, and a mistake in the choice of
cases. The typical mistakes in notebooks' functions, too: none may look right, or like another one."""

from itertools import combinations, product
from unittest import mock

from answers.known import LIMITS, TOGETHER, TOGETHER_WHOLE, check_of, is_caught, is_right, of_part, servers
from grader import judging, run_probes
from grader.checks.notebook_functions import same
from grader.course import UNITS, ready
from grader.exercises import solved
from grader.instructors import hidden
from grader.instructors.notebook_answers import Function, answers

SEEDS, OF_MISTAKES = 200, 2000


def problems(units=None, seeds=SEEDS):
    """Yields a sentence for each answer that gets another verdict than its own under one of so many seeds. units: whose
    answers are judged; None: those of all units that can be checked here."""
    units = units or ready()
    for unit, gap, one, other in set(alike(range(OF_MISTAKES), units)):
        yield f"{unit}, {gap}: for some seed, {one!r} looks like {other!r}"
    with servers() as server_for:
        for unit, part, answer in known(units):
            found = unexpected(unit, part, answer, range(seeds), server_for(part.file))
            for problem, seed in found.items():
                yield f"{unit}, {part.file}, {answer.gap}, {answer.name!r}, seed {seed}: {problem}"


def known(units=UNITS):
    """(unit, part, Answer) of the known answers whose code runs."""
    for unit in units:
        for part in UNITS[unit]:
            for answer in (*of_part(unit, part)[0], *of_part(unit, part)[1]):
                if not callable(check_of(part, answer).probe):
                    yield unit, part, answer


def alike(seeds, units=UNITS):
    """(unit, gap, a typical mistake, another one or "right") of those that have the same values in all calls under one
    of the seeds."""
    functions = [
        (unit, gap, answer) for unit in units for gap, answer in answers(unit).items() if isinstance(answer, Function)
    ]
    for (unit, gap, answer), seed in product(functions, seeds):
        found = [{"right": call.right} | call.mistakes for call in answer.calls(seed)]
        for one, other in combinations(found[0], 2):
            if all(same(values[one], values[other]) for values in found):
                yield unit, gap, other, one


def unexpected(unit, part, answer, seeds, server):
    """{what an instructor would see in place of what is known of this answer: the first seed under which that is
    so}."""
    check, found, seeds = check_of(part, answer), {}, list(seeds)
    text = solved(part.file, **{answer.gap: answer.code})
    source = judging._source(check, part, text)
    added = () if answer.criterion else hidden.cases().get((unit, part.folder, check.gap), ())
    count = max(1, (TOGETHER_WHOLE if check.whole else TOGETHER) // (len(check.cases) + len(added)))
    for first in range(0, len(seeds), count):
        cases = {seed: judging._cases(unit, check, added, seed) for seed in seeds[first : first + count]}
        with mock.patch.object(run_probes, "LIMITS", LIMITS):
            seen, bad = run_probes.alone(
                check, [case for of_seed in cases.values() for case in of_seed], source[0], server, None
            )
        # it raises, or never ends: if that depends on the seed, the first one and this one have different verdicts
        if bad:
            cases = {seed: cases[seed] for seed in dict.fromkeys((seeds[0], bad[0]["seed"])) if seed in cases}
        else:
            run_probes.expected(check, [case for case, _, _ in seen], server)  # of all seeds at once
        for seed, of_seed in cases.items():
            shared = None if bad else ([one for one in seen if one[0]["seed"] == seed], None)
            verdicts, odd = judging._apply(check, of_seed, source, server, None, shared)
            got = {criterion.id: one[:2] for criterion, one in zip(check.criteria, verdicts)}
            fine = is_caught(got, answer, check) if answer.criterion else is_right(got)
            if odd or not fine:
                found.setdefault(odd or str(got), seed)
        if bad:
            break
    return found
