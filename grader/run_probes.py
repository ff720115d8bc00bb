"""Run probes, of one gap or of several gaps in the same ranks, and oracles. grader/judging.py judges their results."""

import json

from grader.probes.cases import MARK
from grader.sandbox import Limits, Outcome, RankOutcome, SandboxFault
from grader.verdict import DEADLOCK, ERROR, FAILED

CASES = "grader.probes.cases"
# these limits are for a gap in one case, which needs well under a second
LIMITS = Limits(cpu_seconds=6, wall_seconds=60, waiting_seconds=10, memory_bytes=1 << 30)
KNOWN = 500  # newest results of oracles that are kept
MANY = 8  # more oracles than this run in two processes
SOON = (FAILED, ERROR, DEADLOCK)  # results of a run that takes no longer than a successful one
LONGEST_TEXT = 2000  # characters of a string that a probe observed, or of a message
LONGEST_LIST = 10_000  # entries of a list that a probe observed
_known = {}


def alone(check, cases, source, server, readable):
    """Run a gap. Return [(case, observations of its ranks, outcome)] up to the first case that fails, and (this case,
    its outcome), or None.

    The cases that students have come first, so that a crash in another one does not hide a mistake in these. Raises
    SandboxFault.
    """
    if check.runner:
        return check.runner(cases, source, server, readable)
    seen, public = [], len(check.cases)
    for ranks, group in (*_by_ranks(cases[:public]), *_by_ranks(cases[public:])):
        found, outcome = _in_ranks_of_its_own(check, group, ranks, source, server, readable)
        if outcome and len(group) > 1 and any(rank.status in SOON for rank in outcome.ranks):  # find the failed case
            for case in group:
                found, outcome = _in_ranks_of_its_own(check, [case], ranks, source, server, readable)
                seen += found
                if outcome:
                    return seen, (case, outcome)
        elif outcome:
            return seen, (group[0], outcome)
        else:
            seen += found
    return seen, None


def _in_ranks_of_its_own(check, group, ranks, source, server, readable):
    """Return ([(case, observations of its ranks, outcome)], None) of cases, or ([], the outcome) if they failed."""
    works = [[check.probe, [source], case] for case in group]
    outcome = server.run(f"{CASES}:run_all", [works], ranks, LIMITS, readable)
    for rank in outcome.ranks:
        rank.observations = _bounded(rank.observations)
    if not _complete(outcome, len(group)):
        return [], outcome
    return [(case, list(of_case), outcome) for case, of_case in zip(group, zip(*outcome.observations))], None


def together(checks, cases, sources, server, readable, limits=None, most=None):
    """Run several gaps, and all cases of each, one after another in the same ranks, and return {gap: the result of
    `alone`}.

    Starting processes takes longer than most gaps. But a gap could damage the processes for the next one, so a wrong or
    missing result here proves nothing: such a gap has to run again `alone`. cases, sources: by gap; a source is None if
    there is nothing to run.

    Trusted code has other `limits` than LIMITS, and `most` works run at the same time; gaps that raise an error on all
    ranks are then included.
    """
    works = {}  # number of ranks -> gap -> works for grader.probes.cases
    for check in checks:
        if sources[check.gap] and not check.runner:
            for ranks, group in _by_ranks(cases[check.gap]):
                works.setdefault(ranks, {})[check.gap] = [[check.probe, [sources[check.gap]], case] for case in group]
    sharing = {gap for gaps in works.values() if len(gaps) > 1 for gap in gaps}
    sharing |= {
        check.gap
        for check in checks
        if any(check.gap in gaps for gaps in works.values()) and _several_kinds(check, cases[check.gap])
    }
    seen = {gap: {} for gap in sharing}
    for ranks, gaps in works.items():
        here = {gap: of_gap for gap, of_gap in gaps.items() if gap in sharing}
        found = {}
        for some in _parts(here, most):
            found |= _all_that_can(some, ranks, server, readable, limits or LIMITS, most is not None)
        sharing -= here.keys() - found.keys()
        for gap in found:
            seen[gap][ranks] = found[gap]
    return {
        gap: _up_to_the_first_error([one for ranks, _ in _by_ranks(cases[gap]) for one in seen[gap][ranks]])
        for gap in sharing
    }


def _parts(gaps, most):
    """Return {gap: works} in parts of at most `most` works, or one gap; None: any number."""
    parts = [{}]
    for gap, of_gap in gaps.items():
        if most and sum(map(len, parts[-1].values())) + len(of_gap) > most and parts[-1]:
            parts.append({})
        parts[-1][gap] = of_gap
    return parts


def _all_that_can(gaps, *run):
    """Return the result of `_in_the_same_ranks` without the gaps at which the ranks end. run: its other arguments."""
    found, again = {}, {}  # again: gaps before one at which the ranks ended
    while gaps:
        seen, ended_at = _in_the_same_ranks(gaps, *run)
        found |= seen
        if ended_at:
            names = list(gaps)
            place = names.index(ended_at)
            again |= {gap: gaps[gap] for gap in names[:place]}
            gaps = {gap: gaps[gap] for gap in names[place + 1 :]}
        else:
            gaps = {}
        if not gaps:
            gaps, again = again, {}
    return found


def _up_to_the_first_error(seen):
    """Return the result of `alone` for the cases [(case, observations of its ranks or None, outcome)]."""
    bad = next((number for number, (_, observations, _) in enumerate(seen) if observations is None), None)
    return (seen, None) if bad is None else (seen[:bad], (seen[bad][0], seen[bad][2]))


def _several_kinds(check, cases):
    """Return whether a gap that runs `alone` has the same number of ranks in the cases that students have and in
    others, which then need another run."""
    public = len(check.cases)
    return bool(dict(_by_ranks(cases[:public])).keys() & dict(_by_ranks(cases[public:])).keys())


def _in_the_same_ranks(gaps, ranks, server, readable, limits, telling):
    """Run all works of {gap: works} once. Return {gap: [(case, observations of its ranks, outcome)]} without the gaps
    that raised an error (with `telling`, these have None instead of observations), and the gap at which the ranks ended
    before others could run, or None."""
    works = [work for of_gap in gaps.values() for work in of_gap]
    try:
        outcome = server.run(
            f"{CASES}:run_isolated", [works, vars(limits) if telling else None], ranks, limits, readable
        )
    except (SandboxFault, OSError):  # if the machine is the cause, a run of each gap by itself shows it
        return {}, None
    printed = [rank.output.split(MARK) for rank in outcome.ranks]
    if not _complete(outcome, len(works)):
        begun = [gap for gap, of_gap in gaps.items() for _ in of_gap][: min(map(len, printed))]
        return {}, begun[-1] if any(rank.status in SOON for rank in outcome.ranks) else None
    if any(len(pieces) != len(works) for pieces in printed):
        return {}, None
    found, begin = {}, 0
    for gap, of_gap in gaps.items():
        part = slice(begin, begin := begin + len(of_gap))
        observed = [_bounded(rank.observations[part]) for rank in outcome.ranks]
        told = [RankOutcome(None, output="".join(pieces[part])) for pieces in printed]
        of_it = Outcome(told, outcome.cpu_seconds / len(gaps), outcome.seconds / len(gaps))
        of_cases = zip((case for _, _, case in of_gap), zip(*observed))
        if telling:
            found[gap] = [(case, *_outcomes_of_cases(of_case, of_it)) for case, of_case in of_cases]
        elif not any(one is None for of_rank in observed for one in of_rank):
            found[gap] = [(case, list(of_case), of_it) for case, of_case in of_cases]
    return found, None


def _outcomes_of_cases(of_case, outcome):
    """Return (observations of the ranks, outcome), or (None, the outcome of ranks that fail). of_case: [observation,
    None] or [None, error] of each rank."""
    if not any(error for _, error in of_case):
        return [observation for observation, _ in of_case], outcome
    return None, Outcome([RankOutcome(**error) for _, error in of_case], outcome.cpu_seconds, outcome.seconds)


def _complete(outcome, works):
    """Return whether all ranks finished, with one observation for each of the works."""
    return all(
        rank.status is None and isinstance(rank.observations, list) and len(rank.observations) == works
        for rank in outcome.ranks
    )


def _by_ranks(cases):
    """Return (ranks, cases) of each run: cases with the same number of ranks share a run."""
    runs = {}
    for case in cases:
        runs.setdefault(case.get("ranks", 1), []).append(case)
    return runs.items()


def foresee(checks, server):
    """Compute the results of several checks' oracles together, and keep them for `expected`. checks: (check, its
    cases). Raises SandboxFault."""
    _compute(
        {_key(check, case): [check.oracle, [], case] for check, cases in checks if check.oracle for case in cases},
        server,
    )


def expected(check, cases, server):
    """Return the result of the check's oracle for each case. It never runs in a process with a student's code. For a
    case that several students of a class have, it runs only once. Raises SandboxFault."""
    if not check.oracle:
        return [None] * len(cases)
    _compute({_key(check, case): [check.oracle, [], case] for case in cases}, server)
    return [_known[_key(check, case)] for case in cases]


def _key(check, case):
    return check.oracle, json.dumps(case, sort_keys=True)


def _compute(works, server):
    """Compute and keep the results of {key: work of an oracle} that are not kept already."""
    missing = {key: work for key, work in works.items() if key not in _known}
    if not missing:
        return
    ranks = 2 if len(missing) > MANY else 1
    found = server.run(f"{CASES}:run_share", [list(missing.values())], ranks).ranks
    for rank in found:
        if rank.status:
            raise SandboxFault(f"an oracle ({', '.join(sorted({name for name, _ in missing}))}) failed: {rank.message}")
    others = [key for key in _known if key not in works]
    for key in others[: max(0, len(_known) + len(missing) - KNOWN)]:
        del _known[key]
    for number, rank in enumerate(found):
        _known.update(zip(list(missing)[number::ranks], rank.observations))


def _bounded(thing):
    """Return observations with long strings and lists cut, because some criteria would take too long for them."""
    if isinstance(thing, str):
        return bounded_text(thing)
    if isinstance(thing, list):
        return [_bounded(one) for one in thing[:LONGEST_LIST]]
    return {bounded_text(key): _bounded(value) for key, value in thing.items()} if isinstance(thing, dict) else thing


def bounded_text(text):
    """Return text of any origin as valid UTF-8 of bounded length."""
    text = text.encode(errors="replace").decode()
    return (
        text
        if len(text) <= LONGEST_TEXT
        else f"{text[:LONGEST_TEXT]} [... {len(text) - LONGEST_TEXT} characters cut ...]"
    )
