"""Judges each known answer under many seeds: a verdict that depends on the seed is luck, and a mistake in the choice of
cases."""

from itertools import combinations, product
from unittest import mock

from grader import judging, run_probes
from grader.checks.notebook_functions import same
from grader.course import UNITS
from grader.instructors import hidden
from grader.instructors.known_answers import LIMITS, TOGETHER, TOGETHER_WHOLE, known, may_fail, solved
from grader.instructors.notebook_answers import Function, answers
from grader.verdict import FAILED, PASSED


def entries():
    """(unit, part, check, entry, whether it is wrong) of the known answers whose code runs."""
    for unit, parts in UNITS.items():
        for part in parts:
            checks = {check.gap: check for check in part.checks if not callable(check.probe)}
            for wrong, of_kind in zip((True, False), known(unit, part.folder)):
                for entry in of_kind:
                    if (name := entry.get("check", entry["gap"])) in checks:
                        yield unit, part, checks[name], entry, wrong


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


def unexpected(unit, part, check, entry, wrong, seeds, server):
    """{what an instructor would see in place of what is known of this answer: the first seed under which that is
    so}."""
    found, seeds = {}, list(seeds)
    text = solved(part.file, **{entry["gap"]: entry["code"]})
    source = judging._source(check, part, text)
    added = () if wrong else hidden.cases().get((unit, part.folder, check.gap), ())
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
            if problem := odd or _problem(check, entry, wrong, verdicts):
                found.setdefault(problem, seed)
        if bad:
            break
    return found


def _problem(check, entry, wrong, verdicts):
    got = {criterion.title: (status, message) for criterion, (status, message, _) in zip(check.criteria, verdicts)}
    if not wrong:
        return next((f"{title}: {message}" for title, (status, message) in got.items() if status != PASSED), None)
    status, message = got[entry["criterion"]]
    if status != entry.get("status", FAILED) or entry["message"] not in message:
        return f"{entry['criterion']}: {status}, {message}"
    others = {title for title, (status, _) in got.items() if status != PASSED} - may_fail(entry, check)
    return f"fails, too: {', '.join(others)}" if others else None
