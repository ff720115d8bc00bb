"""Make verdicts on a student's files: find each gap's code, run its probe in a sandbox, and apply the criteria."""

import ast
import re
import secrets
from contextlib import suppress

from grader import exercises, gaps, hanging_ranks, notebook_cells, run_probes
from grader.budget import Budgeted
from grader.checks import forms
from grader.course import name_of_gap
from grader.gaps import TextError
from grader.sandbox import SandboxFault
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
    UNTOUCHED,
    Verdict,
)

TO_FILL = "this gap is still to be filled"
ONLY_IF = "this counts only if"  # starts the message of a criterion that fails only because another one does
LOOK = "a person should look at it"  # ends the note on a file that uses names outside its gaps
# if several ranks failed, the first of these statuses is reported
BLAME = (FAILED, ERROR, OUT_OF_MEMORY, KILLED, DEADLOCK, TIMEOUT, GRADER_FAULT)
# messages that the gloo of torch 2.8 prints itself
OF_GLOO = re.compile(r"^\[Gloo\] Rank [0-9]+ is connected to .*\n", re.MULTILINE)
LONGEST_FILE = 60_000  # characters
MOST_LINES = 3_000
OUTSIDE = re.compile(  # names that code needs only to reach outside its gap; see docs/grading_reference.md
    r"\b(grader|_getframe|f_back|sys\.modules|settrace|builtins|ctypes|importlib|inspect|gc\.get_\w+|os\.write|sched_setaffinity)\b|/proc|__subclasses__"
)
LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Read error")


def judge(unit, parts, read, server, hidden=None, readable=None, seed=None, shared=None, track=None):
    """Yield the Verdicts on one unit, gap by gap.

    parts: the unit's grader.course.Parts; read(file) returns the text of a student's file, or None, or raises
    TextError; readable: as in grader.sandbox.Server.run; hidden: {(unit, track, gap): cases to add}; seed: of the
    inputs, or None for new inputs each time; shared: another seed for the cases that have an oracle; track: check only
    this track and the shared files.
    """
    prepared = [
        _prepared(unit, part, read, hidden, seed, shared) for part in parts if not track or part.track in (track, "")
    ]
    with suppress(SandboxFault):  # each check reports it when it requests the expected values
        run_probes.foresee([(check, cases[check.gap]) for part, cases, _ in prepared for check in part.checks], server)
    for part, cases, given in prepared:
        budgeted = Budgeted(server)
        together = run_probes.together(
            part.checks, cases, {gap: source for gap, (source, _, _) in given.items()}, budgeted, readable
        )
        for check in part.checks:
            common = {"unit": unit, "track": part.track, "gap": name_of_gap(unit, part.file, check.gap)}
            judged = _judge_gap(
                check, cases[check.gap], part, given[check.gap], budgeted, readable, together.get(check.gap)
            )
            # The error that stops a whole run belongs to no criterion: its message contains the remedy, and no hint
            # applies.
            stopped = len(judged) > 1 and len({(status, message) for status, message, _ in judged}) == 1
            for criterion, (status, message, outcome) in zip(check.criteria, judged):
                yield Verdict(
                    **common,
                    check=criterion.title,
                    status=status,
                    points={PASSED: criterion.points, GRADER_FAULT: None}.get(status, 0),
                    max_points=criterion.points,
                    message=run_probes.bounded_text(message),
                    hint=""
                    if stopped or status in (PASSED, *UNTOUCHED) or message.startswith(ONLY_IF)
                    else criterion.hint,
                    output=_output(outcome),
                    seconds=outcome.seconds if outcome else 0.0,
                    cpu_seconds=outcome.cpu_seconds if outcome else 0.0,
                    measured=outcome.measured if outcome else None,
                )


def _prepared(unit, part, read, hidden, seed, shared):
    """Return (part, the cases of each gap, the result of `_source` for it), both by gap. The arguments are those of
    `judge`."""
    try:
        text, missing = read(part.file), f"there is no file {part.file}"
    except TextError as problem:
        text, missing = None, f"{part.file}: {problem}"
    if text and (len(text) > LONGEST_FILE or text.count("\n") > MOST_LINES):
        text, missing = (
            None,
            f"{part.file} is longer than this exercise needs: copy your answers into the original file",
        )
    added = {check.gap: (hidden or {}).get((unit, part.folder, check.gap), ()) for check in part.checks}
    seeds = {check.gap: seed if shared is None or not check.oracle else shared for check in part.checks}
    given = {
        check.gap: _source(check, part, text) if text is not None else (None, NOT_FOUND, missing)
        for check in part.checks
    }
    cases = {check.gap: [] for check in part.checks}
    for check in (check for check in part.checks if given[check.gap][0]):
        try:
            cases[check.gap] = _cases(unit, check, added[check.gap], seeds[check.gap])
        except Exception as error:  # an error of the course's own code
            given[check.gap] = (
                None,
                GRADER_FAULT,
                f"not graded: the check cannot create its inputs ({type(error).__name__}: {error})",
            )
    return part, cases, given


def _cases(unit, check, hidden, seed):
    cases = [
        {"unit": unit, "seed": secrets.randbelow(1 << 31) if seed is None else seed} | case
        for case in (*check.cases, *hidden)
    ]
    return [case | check.given(case) for case in cases] if check.given else cases


def _judge_gap(check, cases, part, given, server, readable, shared):
    """Return (status, message, outcome) for each criterion of a check.

    given: the result of `_source`. shared: the result of a joint run with other gaps, or None. If a joint run is not
    entirely right, the gap runs again alone. server: a Budgeted. Runs of the solution do not use its budget.
    """
    try:
        found, odd = _apply(check, cases, given, server, readable, shared)
        if shared and (odd or any(status != PASSED for status, _, _ in found)):
            found, odd = _apply(check, cases, given, server, readable)
        if odd and not _works_for_the_solution(check, cases, part, server.server, readable):
            raise SandboxFault(f"the result of this gap cannot be judged ({odd})")
    except SandboxFault as fault:
        note = "" if given[1] else given[2]
        return [(GRADER_FAULT, f"not graded: {str(fault).strip().splitlines()[-1]}{note}", None)] * len(check.criteria)
    return found


def _apply(check, cases, given, server, readable, shared=None):
    """Return the result of `_judge_gap`, and the error that a criterion raised or "". Raises SandboxFault."""
    source, status, message = given
    if status:
        return [(status, message, None)] * len(check.criteria), ""
    odd, hidden = "", cases[len(check.cases) :]
    seen, bad = shared or run_probes.alone(check, cases, source, server, readable)
    found = [(PASSED, message, seen[-1][2] if seen else None)] * len(check.criteria)
    message += _power(source)
    expected = run_probes.expected(check, [case for case, _, _ in seen], server)
    for (case, observations, outcome), right in zip(seen, expected):
        unfitting = [one for one in observations if check.observed and not forms.fits(one, check.observed(case))]
        if unfitting:
            shapes = forms.other_shape(unfitting[0], check.observed(case))
            if not shapes:
                odd = "too few values, too many, or values of the wrong type"
            unjudged = _of_another_shape(*shapes) if shapes else f"the result of your code cannot be judged ({odd})"
            unfit = FAILED, f"{unjudged}{_with(case, case in hidden)}{message}", outcome
            found = [
                unfit if one[0] != FAILED and _concerns(check, criterion, case) else one
                for criterion, one in zip(check.criteria, found)
            ]
        for number, criterion in enumerate(check.criteria):
            judged = found[number][0] == PASSED and _concerns(check, criterion, case)
            try:
                problem = criterion.judge(observations, case, right) if judged else None
            except Exception as error:
                odd = f"{type(error).__name__}: {error}"
                problem = f"the result of your code cannot be judged ({odd})"
            if problem:
                found[number] = (FAILED, f"{problem}{_with(case, case in hidden)}{message}", outcome)
    if bad:
        case, outcome = bad
        status, problem = _what_went_wrong(outcome, source)
        if status == GRADER_FAULT:  # a student's code can also report this status
            status, odd = ERROR, problem
        stopped = status, f"{problem}{_with(case, case in hidden)}{message}", outcome
        found = [
            stopped if one[0] != FAILED and _concerns(check, criterion, case) else one
            for criterion, one in zip(check.criteria, found)
        ]
    return _with_needs(check, found, message), odd


def _power(source):
    """Return a note for a failed gap of a notebook that has `^` between numbers, else ""."""
    with suppress(SyntaxError, ValueError):
        nodes = ast.walk(gaps.parsed(source["code"])) if source["file"].endswith(".ipynb") else ()
        if any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor) for node in nodes):
            return " [`^` does not mean a power in Python: write `**`]"
    return ""


def _of_another_shape(found, right):
    """Return a sentence on the shape of a student's array. right: None for a dimension of any length."""
    wanted = str(tuple(right)).replace("None", "*")
    if "*" in wanted:
        return f"the shape of your code's result is {tuple(found)}, but it should be {wanted} (* is any length)"
    return f"the shape of your code's result is {tuple(found)}, but it should be {wanted}"


def _concerns(check, criterion, case):
    """Return whether a criterion is judged in a case. If the check has criteria for edges, only these are judged in a
    case with an edge."""
    return criterion.edge == ("edge" in case) or not any(one.edge for one in check.criteria)


def _with_needs(check, found, note):
    """Return `found`, but fail each passed criterion whose needed criterion failed. note: the end of the message."""
    criteria = {criterion.id: criterion for criterion in check.criteria}
    passed = {id for id, (status, _, _) in zip(criteria, found) if status == PASSED}
    counting = set(passed)
    while left_out := {id for id in counting if criteria[id].needs and criteria[id].needs not in counting}:
        counting -= left_out

    def cause(id):
        """Return the title of the criterion that failed itself, and so prevents `id` from counting, possibly over
        several steps."""
        return cause(criteria[id].needs) if id in passed else criteria[id].title

    return [
        (FAILED, f'{ONLY_IF} "{cause(id)}" passes, too{note}', one[2]) if id in passed - counting else one
        for id, one in zip(criteria, found)
    ]


def _works_for_the_solution(check, cases, part, server, readable):
    """Return whether the check passes the solution. If so, an error that the check raised is the student's mistake,
    otherwise the grader's."""
    try:
        right = exercises.solved(part.file)
    except OSError:  # students do not have it
        return False
    found, _ = _apply(check, cases, _source(check, part, right), server, readable)
    return all(status == PASSED for status, _, _ in found)


def _source(check, part, text):
    """(source, None, "" or a note for the student), or (None, a status, a sentence) if there is nothing to run."""
    exercise = exercises.given_out(part.file)
    source = {"file": part.file.rsplit("/", 1)[1], "text": text, "code": "", "line": 1}
    if check.whole:
        fragments = {gap.name: gaps.find(exercise, gap.name, text) for gap in exercise.gaps}
        unfilled = [name for name, fragment in fragments.items() if not fragment or not fragment.code]
        if check.gap in unfilled:
            return None, NOT_ATTEMPTED, TO_FILL
        return (
            (None, NOT_ATTEMPTED, f"fill the other gaps first: {', '.join(unfilled)}")
            if unfilled
            else (source, None, _reaching(exercise, text))
        )
    if problem := notebook_cells.lost(text, part.file, check.gap, exercise):
        return None, NOT_FOUND, problem
    fragment = gaps.find(exercise, check.gap, text)
    if fragment is None:
        return (
            None,
            NOT_FOUND,
            f"this gap cannot be found in {part.file}, because the lines around it have changed: copy them from the"
            " original file",
        )
    if not fragment.code:
        return None, NOT_ATTEMPTED, TO_FILL
    source |= {"code": fragment.code, "line": fragment.line}
    broken = gaps.unreadable(text) if source["file"].endswith(".py") else None
    if not broken:
        notes = _changed(exercise, check.gap, text) + _reaching(exercise, text)
        return source | _around(part, check.gap, text), None, notes
    line, what = broken
    if gaps.CONFLICT.match(gaps.text_lines(text)[line - 1]):
        what = "a merge conflict marker of git"
    elsewhere = not fragment.line <= line <= fragment.line + fragment.code.count("\n")
    note = f" [line {line} of {source['file']} is not valid Python ({what}): this gap was checked in the original file]"
    return (
        source | {"text": exercise.text} | _around(part, check.gap, exercise.text),
        None,
        note * elsewhere + _reaching(exercise, text),
    )


def _around(part, name, text):
    """Return the surroundings of a script's gap, as grader.probes.script.Script takes them; {} for a notebook."""
    if not part.file.endswith(".py"):
        return {}
    exercise = exercises.given_out(part.file)
    others = {gap.name: gaps.find(exercise, gap.name, text) for gap in exercise.gaps if gap.name != name}
    code = {gap: [fragment.code, fragment.line] for gap, fragment in others.items() if fragment and fragment.code}
    hint = next(gap.hint for gap in exercise.gaps if gap.name == name)
    return {
        "gap": name,
        "hint": hint,
        "given": gaps.emptied(exercise),
        "lines": gaps.lines_of(exercise, text),
        "others": code,
    }


def _changed(exercise, gap, text):
    """Return a note on a given line that the student changed in the function around a script's gap, otherwise "". It
    changes no points, because the gap runs among the released lines."""
    line = None if gaps.is_notebook(exercise) else gaps.changed_line(exercise, gap, text)
    return f" [the given line `{line}` was changed: this gap was checked with the original line]" if line else ""


def _reaching(exercise, text):
    """Return a note for the instructor if the student's own lines match OUTSIDE, otherwise "". It changes no points."""
    given = set(map(str.strip, exercise.lines))
    found = next(
        filter(None, (OUTSIDE.search(line) for line in gaps.text_lines(text) if line.strip() not in given)), None
    )
    return f" [this file mentions `{found[0]}`: {LOOK}]" if found else ""


def _what_went_wrong(outcome, source):
    """Return (status, message) of the rank that made a run fail."""
    bad = [(rank, of_rank) for rank, of_rank in enumerate(outcome.ranks) if of_rank.status]
    if not bad:
        return ERROR, "the check received something other than its result"
    rank, worst = min(
        bad, key=lambda one: (any(sign in one[1].message for sign in LOST_PEER), BLAME.index(one[1].status), one[0])
    )
    named = worst.message.startswith(f"rank {rank} ")
    who = f"rank {rank}: " if len(outcome.ranks) > 1 and not named else ""
    where = f" ({_place(worst.line, source)})" if worst.line else ""
    if worst.status == DEADLOCK and (len(outcome.ranks) > 1 or worst.waiting or worst.waits_for):
        return DEADLOCK, hanging_ranks.sentence(outcome.ranks, lambda line: _place(line, source))
    return worst.status, f"{who}{worst.message}{where}"


def _place(line, source):
    """Return the position of a line as students count it: in a notebook, from the start of its cell."""
    if not source["file"].endswith(".ipynb"):
        return f"line {line} of {source['file']}"
    before = gaps.text_lines(source["text"])[:line]
    return (
        f"line {next((count for count, text in enumerate(reversed(before)) if text.startswith(gaps.CELL)), line)} of"
        " its cell"
    )


def _with(case, hidden):
    """Return a note on the special features of a case, or "". hidden: whether self-checks lack the case."""
    ranks = case.get("ranks", 1)
    special = [f"with {ranks} ranks"] if ranks > 1 else []
    special += [f"in the case of {case['edge']}"] if "edge" in case else []
    special += (
        ["which only the grading has" if "edge" in case else "in a case that only the grading has"] if hidden else []
    )
    return f" ({', '.join(special)})" if special else ""


def _output(outcome):
    texts = [OF_GLOO.sub("", of_rank.output) for of_rank in outcome.ranks] if outcome else []
    printed = [(rank, text) for rank, text in enumerate(texts) if text]
    return "\n".join(f"[rank {rank}]\n{text}" if len(outcome.ranks) > 1 else text for rank, text in printed)
