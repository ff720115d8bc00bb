"""From what a student handed in to verdicts: finds each gap's code, has it probed in a box, and applies the criteria."""

import json
import re
import secrets

from grader import exercises, gaps
from grader.box import BoxFault, Outcome, RankOutcome
from grader.checks import judges
from grader.notebooks import LOST, NotebookError
from grader.sandbox import Limits
from grader.verdict import (
    DEADLOCK,
    ERROR,
    FAILED,
    GRADER_FAULT,
    KILLED,
    NOT_ATTEMPTED,
    NOT_FOUND,
    OUT_OF_MEMORY,
    PASSED,
    TIMEOUT,
    Verdict,
)

BLAME = (FAILED, ERROR, OUT_OF_MEMORY, KILLED, DEADLOCK, TIMEOUT)  # of several ranks that ended badly, the first of these is told
LIMITS = Limits(cpu_seconds=6, wall_seconds=60, memory_bytes=1 << 30)  # of a gap in one case, which takes well under a second
KNOWN = 200  # what oracles said that is kept
LONGEST_FILE = 60_000  # characters
MOST_LINES = 3_000
LONGEST_TEXT = 2000  # characters of a string that a probe observed, or of a message
OUTSIDE = re.compile(  # what code mentions that wants more than to fill its gap; see docs/grading.md
    r"\b(grader|_getframe|f_back|sys\.modules|settrace|builtins|ctypes|importlib|inspect|gc\.get_\w+|os\.write)\b|/proc|__subclasses__"
)
LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Read error")
_known = {}


def judge(unit, parts, read, server, hidden=None, readable=None, seed=None, track=None):
    """The Verdicts on one unit, a gap after the other as an iterator.

    parts: the unit's grader.checks.Part list; read(file) gives the text of a file that the student has, or None, or raises
    NotebookError; hidden: cases to add, by (unit, track, gap); seed: of the inputs, or None for new ones each time; track: only this
    one (and what both share).
    """
    for part in parts:
        if track and part.track not in (track, ""):
            continue
        try:
            text, missing = read(part.file), f"there is no file {part.file}"
        except NotebookError as problem:
            text, missing = None, f"{part.file}: {problem}"
        if text and (len(text) > LONGEST_FILE or text.count("\n") > MOST_LINES):
            text, missing = None, f"{part.file} is longer than what a student writes: copy your answers into the one given out"
        for check in part.checks:
            cases = check.cases + tuple((hidden or {}).get((unit, part.track, check.gap), ()))
            common = {"unit": unit, "track": part.track, "gap": check.gap}
            judged = _judge_gap(check, cases, part, text, missing, server, readable, seed)
            for criterion, (status, message, outcome) in zip(check.criteria, judged):
                yield Verdict(
                    **common,
                    check=criterion.title,
                    status=status,
                    points={PASSED: criterion.points, GRADER_FAULT: None}.get(status, 0),
                    max_points=criterion.points,
                    message=_bounded_text(message),
                    hint="" if status == PASSED else criterion.hint,
                    output=_output(outcome),
                    seconds=outcome.seconds if outcome else 0.0,
                    cpu_seconds=outcome.cpu_seconds if outcome else 0.0,
                )


def longest(check, hidden):
    """Seconds that judging one gap can take at the very most, with a number of `hidden` cases."""
    if callable(check.probe):
        return 0
    return 2 * (len(check.cases) + hidden) * LIMITS.wall_seconds + Limits().wall_seconds  # twice: see _works_for_the_solution


def _judge_gap(check, cases, part, text, missing, server, readable, seed):
    """(status, message, outcome) for each criterion of a check."""
    if text is None:
        return [(NOT_FOUND, missing, None)] * len(check.criteria)
    cases = [{"seed": secrets.randbelow(1 << 31) if seed is None else seed} | case for case in cases]
    try:
        found, odd = _apply(check, cases, part, text, server, readable)
        if odd and not _works_for_the_solution(check, cases, part, server, readable):
            raise BoxFault(f"what this gap did can't be judged ({odd})")
    except BoxFault as fault:
        return [(GRADER_FAULT, f"not graded: {str(fault).strip().splitlines()[-1]}", None)] * len(check.criteria)
    return found


def _apply(check, cases, part, text, server, readable):
    """As `_judge_gap`, and what a criterion, or a probe that only reads, could not cope with, or "". Raises BoxFault."""
    source, status, message = _source(check, part, text)
    if status:
        return [(status, message, None)] * len(check.criteria), ""
    odd = ""
    try:
        seen, bad = _probe(check, cases, source, server, readable)
    except BoxFault:
        raise
    except Exception as error:  # of a probe that reads the text
        odd = f"{type(error).__name__}: {error}"
        return [(FAILED, f"what is in it can't be read ({odd})", None)] * len(check.criteria), odd
    found = [(PASSED, message, seen[-1][2] if seen else None)] * len(check.criteria)
    expected = _expected(check, [case for case, _, _ in seen], server)
    for (case, observations, outcome), right in zip(seen, expected):
        for number, criterion in enumerate(check.criteria):
            try:
                problem = criterion.judge(observations, case, right) if found[number][0] == PASSED else None
            except Exception as error:
                odd = f"{type(error).__name__}: {error}"
                problem = f"what it gave can't be judged ({odd})"
            if problem:
                found[number] = (FAILED, f"{problem}{_case(case)}{message}", outcome)
    if bad:
        status, problem, outcome = bad
        found = [one if one[0] == FAILED else (status, f"{problem}{message}", outcome) for one in found]
    return found, odd


def _works_for_the_solution(check, cases, part, server, readable):
    """Whether the check, which met something it can't cope with, does what it should for the right answer: then the student's is to blame."""
    try:
        solution = exercises.solution(part.file).read_text()
    except OSError:  # students don't have it
        return False
    right = gaps.fill(exercises.given_out(part.file), gaps.answers(solution))
    found, _ = _apply(check, cases, part, right, server, readable)
    return all(status == PASSED for status, _, _ in found)


def _probe(check, cases, source, server, readable):
    """[(case, observations of its ranks, outcome)] up to the first run in which a rank ended badly; of that (status, message, outcome), or None."""
    seen = []
    for ranks, group in _together(cases):
        if callable(check.probe):
            outcome = Outcome([RankOutcome(None, [check.probe(source["text"], case) for case in group])])
        else:
            outcome = server.run("grader.probes.cases:each", [check.probe, [source], group], ranks, LIMITS, readable)
            for rank in outcome.ranks:
                rank.observations = _bounded(rank.observations)
        if bad := _what_went_wrong(outcome, source):
            return seen, (*bad, outcome)
        if any(not isinstance(one, list) or len(one) != len(group) for one in outcome.observations):
            return seen, (ERROR, "something else came back than what was asked for", outcome)
        observations = zip(*outcome.observations)
        seen += [(case, list(of_case), outcome) for case, of_case in zip(group, observations)]
    return seen, None


def _source(check, part, text):
    """(source, None, "" or a note for the student), or (None, a status, a sentence) where there is nothing to run."""
    exercise = exercises.given_out(part.file)
    source = {"file": part.file.rsplit("/", 1)[1], "text": text, "code": "", "line": 1}
    if check.whole:
        fragments = {gap.name: gaps.find(exercise, gap.name, text) for gap in exercise.gaps}
        unfilled = [name for name, fragment in fragments.items() if not fragment or not fragment.code]
        return (None, NOT_ATTEMPTED, f"fill the other gaps first: {', '.join(unfilled)}") if unfilled else (source, None, _reaching(exercise, text))
    if f"{LOST} {check.gap}\n" in text:
        return None, NOT_FOUND, f"the cell of this gap is not found in {part.file}: copy its given lines anew"
    fragment = gaps.find(exercise, check.gap, text)
    if fragment is None:
        return None, NOT_FOUND, f"the place of this gap is not found in {part.file}: the lines around it have changed; copy them anew"
    if not fragment.code:
        return None, NOT_ATTEMPTED, "this gap is still to be filled"
    source |= {"code": fragment.code, "line": fragment.line}
    broken = gaps.unreadable(text) if source["file"].endswith(".py") else None
    if not broken:
        return source, None, _reaching(exercise, text)
    line, what = broken
    elsewhere = not fragment.line <= line <= fragment.line + fragment.code.count("\n")
    note = f" [line {line} of {source['file']} is no Python ({what}): this gap was checked in the file as it was given out]"
    return source | {"text": exercise.text}, None, note * elsewhere + _reaching(exercise, text)


def _reaching(exercise, text):
    """A note for people if the student's own lines mention what is outside of a gap, else "". It changes no points."""
    given = set(map(str.strip, exercise.lines))
    found = next(filter(None, (OUTSIDE.search(line) for line in text.splitlines() if line.strip() not in given)), None)
    return f" [this file mentions `{found[0]}`: a person should look at it]" if found else ""


def _together(cases):
    """(ranks, cases) of each run: cases with the same number of ranks share it, since processes cost more than cases."""
    runs = {}
    for case in cases:
        runs.setdefault(_ranks(case), []).append(case)
    return runs.items()


def _ranks(case):
    return case.get("ranks", 1)


def _expected(check, cases, server):
    """What the check's oracle gives for each case. It runs when the student's code has ended, and never in the same process; for the
    same cases, as a class has them, only once."""
    if not check.oracle or not cases:
        return [None] * len(cases)
    key = check.oracle, json.dumps(cases, sort_keys=True)
    if key not in _known:
        if len(_known) >= KNOWN:
            _known.clear()
        _known[key] = _oracle(check, cases, server)
    return _known[key]


def _oracle(check, cases, server):
    (rank,) = server.run("grader.probes.cases:each", [check.oracle, [], cases]).ranks
    if rank.status:
        raise BoxFault(f"the oracle {check.oracle} failed: {rank.message}")
    return rank.observations


def _what_went_wrong(outcome, source):
    """None if all ranks returned, else (status, message) of the one to blame."""
    bad = [(rank, of_rank) for rank, of_rank in enumerate(outcome.ranks) if of_rank.status]
    if not bad:
        return None
    rank, worst = min(bad, key=lambda one: (any(sign in one[1].message for sign in LOST_PEER), BLAME.index(one[1].status), one[0]))
    who = f"rank {rank}: " if len(outcome.ranks) > 1 else ""
    where = f" ({_place(worst.line, source)})" if worst.line else ""
    if worst.status == DEADLOCK:
        where_each = {}
        for number, one in bad:
            where_each.setdefault(one.waiting, []).append(number)
        waits = [f"{judges.ranks(numbers)} wait{'s' * (len(numbers) == 1)} in {place}" for place, numbers in where_each.items() if place]
        others = [number for number, one in enumerate(outcome.ranks) if not one.waiting]
        never = f", but {judges.ranks(others)} never came there" if others else ""
        return DEADLOCK, f"{'; '.join(waits)}{never}{where}"
    return worst.status, f"{who}{worst.message}{where}"


def _place(line, source):
    """Where a line is, as students count: those of a notebook see the lines of a cell."""
    if not source["file"].endswith(".ipynb"):
        return f"line {line} of {source['file']}"
    before = source["text"].splitlines()[:line]
    return f"line {next((count for count, text in enumerate(reversed(before)) if text.startswith(gaps.CELL)), line)} of its cell"


def _case(case):
    """In what case something was wrong, where that says more than one process."""
    return f" (with {_ranks(case)} ranks)" if _ranks(case) > 1 else ""


def _output(outcome):
    printed = [(rank, of_rank.output) for rank, of_rank in enumerate(outcome.ranks) if of_rank.output] if outcome else []
    return "\n".join(f"[rank {rank}]\n{text}" if len(outcome.ranks) > 1 else text for rank, text in printed)


def _bounded(thing):
    """Observations without long strings, which some criteria would take too long for."""
    if isinstance(thing, str):
        return _bounded_text(thing)
    if isinstance(thing, list):
        return [_bounded(one) for one in thing]
    return {_bounded_text(key): _bounded(value) for key, value in thing.items()} if isinstance(thing, dict) else thing


def _bounded_text(text):
    """Text of any origin that can be stored, and is not too long."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} [... {len(text) - LONGEST_TEXT} characters cut ...]"
