"""From what a student handed in to verdicts: finds each gap's code, has it probed in a box, and applies the criteria."""

import secrets

from grader import exercises, gaps
from grader.box import BoxFault
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
LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Read error")


def judge(unit, parts, read, server, hidden=None, readable=None, seed=None, track=None):
    """The Verdicts on one unit, a gap after the other as an iterator.

    parts: the unit's grader.checks.Part list; read(file) gives the text of a file that the student has, or None; hidden: cases to
    add, by (unit, track, gap); seed: of the inputs, or None for new ones each time; track: only this one (and what both share).
    """
    for part in parts:
        if track and part.track not in (track, ""):
            continue
        text = read(part.file)
        for check in part.checks:
            cases = check.cases + tuple((hidden or {}).get((unit, part.track, check.gap), ()))
            common = {"unit": unit, "track": part.track, "gap": check.gap}
            for criterion, (status, message, outcome) in zip(check.criteria, _judge_gap(check, cases, part, text, server, readable, seed)):
                yield Verdict(
                    **common,
                    check=criterion.title,
                    status=status,
                    points={PASSED: criterion.points, GRADER_FAULT: None}.get(status, 0),
                    max_points=criterion.points,
                    message=message,
                    hint="" if status == PASSED else criterion.hint,
                    output=_output(outcome),
                    seconds=outcome.seconds if outcome else 0.0,
                    cpu_seconds=outcome.cpu_seconds if outcome else 0.0,
                )


def _judge_gap(check, cases, part, text, server, readable, seed):
    """(status, message, outcome) for each criterion of a check."""

    def all_alike(status, message, outcome=None):
        return [(status, message, outcome)] * len(check.criteria)

    if text is None:
        return all_alike(NOT_FOUND, f"there is no file {part.file}")
    exercise = exercises.given_out(part.file)
    fragment = gaps.find(exercise, check.gap, text)
    if fragment is None:
        return all_alike(NOT_FOUND, f"the place of this gap is not found in {part.file}: the lines around it have changed; copy them anew")
    if not fragment.code:
        return all_alike(NOT_ATTEMPTED, "this gap is still to be filled")
    source = {"file": part.file.rsplit("/", 1)[1], "text": text, "code": fragment.code, "line": fragment.line}
    found = [(PASSED, "", None)] * len(check.criteria)
    try:
        for case in cases:
            case = {"seed": secrets.randbelow(1 << 31) if seed is None else seed} | case
            outcome = server.run(check.probe, [source, case], case.get("ranks", 1), readable=readable)
            if bad := _what_went_wrong(outcome, source["file"]):
                return [one if one[0] == FAILED else (*bad, outcome) for one in found]
            expected = server.run(check.oracle, [case]).observations[0] if check.oracle else None
            for number, criterion in enumerate(check.criteria):
                if found[number][0] == PASSED:
                    problem = criterion.judge(outcome.observations, case, expected)
                    found[number] = (FAILED, f"{problem}{_case(case)}", outcome) if problem else (PASSED, "", outcome)
    except BoxFault as fault:
        return all_alike(GRADER_FAULT, f"not graded: {str(fault).strip().splitlines()[-1]}")
    return found


def _what_went_wrong(outcome, file):
    """None if all ranks returned, else (status, message) of the one to blame."""
    bad = [(rank, of_rank) for rank, of_rank in enumerate(outcome.ranks) if of_rank.status]
    if not bad:
        return None
    rank, worst = min(bad, key=lambda one: (any(sign in one[1].message for sign in LOST_PEER), BLAME.index(one[1].status), one[0]))
    who = f"rank {rank}: " if len(outcome.ranks) > 1 else ""
    where = f" (line {worst.line} of {file})" if worst.line else ""
    if worst.status == DEADLOCK:
        waits = [f"rank {number} waits in {one.waiting}" for number, one in bad if one.waiting]
        others = [number for number, one in enumerate(outcome.ranks) if not one.waiting]
        never = f", but rank{'s' * (len(others) > 1)} {', '.join(map(str, others))} never came there" if others else ""
        return DEADLOCK, f"{'; '.join(waits)}{never}{where}"
    return worst.status, f"{who}{worst.message}{where}"


def _case(case):
    """In what case something was wrong, where that says more than one process."""
    ranks = case.get("ranks", 1)
    return f" (with {ranks} ranks)" if ranks > 1 else ""


def _output(outcome):
    printed = [(rank, of_rank.output) for rank, of_rank in enumerate(outcome.ranks) if of_rank.output] if outcome else []
    return "\n".join(f"[rank {rank}]\n{text}" if len(outcome.ranks) > 1 else text for rank, text in printed)
