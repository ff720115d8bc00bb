"""Known answers, wrong and right, which prove that the checks work. Students never receive them.

answers/UNIT/ has a file for each script, job script and notebook of the unit (`file_of`):

    [GAP.wrong."NAME"]     a wrong answer with one misconception. criterion: the id of the one that must fail; code;
                           also: ids of others that may fail; status: of the verdict, if not "failed"; check: the check
                           that is meant, if not the gap's own, such as the run of the whole file; same_as: the name of
                           another one that reads the same sentence, which is otherwise a problem
    [GAP.right."NAME"]     a right answer that is written in another way: code

Those of job scripts are written for the site `local`, and judged as there.
"""

import contextlib
import functools
import tomllib
from dataclasses import dataclass, fields, replace

from grader import judging, run_probes
from grader.course import NOTEBOOK, UNITS
from grader.exercises import solved
from grader.instructors import hidden
from grader.instructors.grade.work import readable
from grader.probes import FOR_FRAMEWORKS, FOR_NOTEBOOKS, FOR_SCRIPTS, loaded_for
from grader.sandbox import Limits, Server
from grader.verdict import FAILED, PASSED
from handson.errors import OneSentence
from handson.files import COURSE

ANSWERS = COURSE / "answers"
SITE = "local"
SEED = 0  # of the inputs; answers/seeds.py judges under many
TOGETHER, TOGETHER_WHOLE = 40, 6  # cases that run in the same processes, of a gap and of a whole script: a rank may
# answer a few megabytes
LIMITS = Limits(cpu_seconds=120, wall_seconds=300, memory_bytes=2 << 30)  # of so many cases together


class AnswerError(OneSentence, ValueError):
    """A sentence on what is wrong in a file of known answers."""


@dataclass(frozen=True)
class Answer:
    """A known answer to a gap. criterion: the id of the one that a wrong answer fails; "" for a right answer."""

    gap: str
    name: str
    code: str
    criterion: str = ""
    also: tuple = ()
    status: str = FAILED
    check: str = ""
    same_as: str = ""

    @property
    def of_check(self):
        """The gap whose check this answer is for."""
        return self.check or self.gap


def file_of(unit, part):
    """Where the known answers to a file's gaps are: answers/UNIT/TRACK/SCRIPT.toml, or answers/UNIT/notebook.toml; to
    those of a second notebook, notebook_b.toml."""
    room, _, path = part.file.partition("/")
    if room == "notebooks":
        number = path.partition("_")[0]
        name = NOTEBOOK if number.isdigit() else f"{NOTEBOOK}_{number[2:]}"
    else:
        name = path.split("/", 1)[1].rpartition(".")[0]
    return ANSWERS / unit / f"{name}.toml"


@functools.cache  # a file has hundreds of lines, and is asked for again and again
def read(path):
    """([wrong Answers], [right Answers]) of a file; none if there is no such file."""
    found = [], []
    if path.is_file():
        for gap, kinds in tomllib.loads(path.read_text()).items():
            for answers, kind in zip(found, ("wrong", "right")):
                for name, values in _table(path, gap, kinds).get(kind, {}).items():
                    answers.append(_answer(path, gap, kind, name, values))
    return found


def _table(path, gap, kinds):
    """What stands at [GAP]: the tables `wrong` and `right` alone. Raises AnswerError for anything else."""
    other = kinds.keys() - {"wrong", "right"} if isinstance(kinds, dict) else {gap}
    if other:
        raise AnswerError(
            f'{path}: [{gap}] has {min(other)}, but known answers are [{gap}.wrong."NAME"] and [{gap}.right."NAME"]'
        )
    return kinds


def _answer(path, gap, kind, name, values):
    """One Answer. Raises AnswerError for a key that it does not have, or lacks."""
    known_keys = {one.name for one in fields(Answer)} - {"gap", "name"}
    needed = {"code", "criterion"} if kind == "wrong" else {"code"}
    if wrong := (values.keys() - known_keys) or (needed - values.keys()):
        what = "an unknown key" if values.keys() - known_keys else "no key"
        raise AnswerError(f'{path}: [{gap}.{kind}."{name}"] has {what} {min(wrong)}: see the top of answers/known.py')
    return Answer(gap, name, **values | {"also": tuple(values.get("also", ()))})


def of_part(unit, part):
    """([wrong Answers], [right Answers]) of one file of a unit."""
    return read(file_of(unit, part))


def of_unit(unit, folder=""):
    """([wrong Answers], [right Answers]) of a unit's files of one track; of "": of those that both tracks share."""
    parts = [of_part(unit, part) for part in UNITS[unit] if part.folder == folder]
    return tuple([answer for of_one in parts for answer in of_one[kind]] for kind in (0, 1))


def first_of(unit, part):
    """As `of_part`, but one wrong answer for each criterion and one right one for each gap."""
    wrong, right = of_part(unit, part)
    per_criterion = {(answer.gap, answer.of_check, answer.criterion): answer for answer in reversed(wrong)}
    per_gap = {answer.gap: answer for answer in reversed(right)}
    return (
        [answer for answer in wrong if answer in per_criterion.values()],
        [answer for answer in right if answer in per_gap.values()],
    )


@contextlib.contextmanager
def servers():
    """A function: the sandbox's server for a file, as grading chooses it. All of them are stopped at the end."""
    found = {libraries: Server(libraries) for libraries in (FOR_SCRIPTS, FOR_NOTEBOOKS, FOR_FRAMEWORKS)}
    try:
        yield lambda file: found[loaded_for([file])]
    finally:
        for server in found.values():
            server.stop()


def verdicts(unit, part, text, server, names=None, cases=None, site=None):
    """The verdicts on a file, or on its checks called `names`, judged in a sandbox as `grade` does. cases: hidden ones;
    site: where a job script is judged; else the chosen one."""
    checks = (_at(part, site) if site else part).checks
    part = replace(part, checks=tuple(check for check in checks if names is None or check.gap in names))
    return list(judging.judge(unit, (part,), lambda file: text, server, cases, readable(), SEED))


def check_of(part, answer):
    """The check that a known answer is meant for."""
    return next(check for check in part.checks if check.gap == answer.of_check)


def wrong_in_bulk(unit, part, server, answers):
    """{answer: {criterion's id: (status, message)}} of wrong answers to a file's gaps, which run in the same ranks, as
    the gaps of a file do. Those that don't share their ranks with others, since they end them or hang, are left out."""
    part = _at(part, SITE)
    sharing = [answer for answer in answers if answer.status == FAILED]
    texts = [(answer, solved(part.file, **{answer.gap: answer.code})) for answer in sharing]
    return _in_bulk(unit, part, [(answer, check_of(part, answer), text) for answer, text in texts], server)


def right_in_bulk(unit, part, server, answers):
    """As `wrong_in_bulk`, but of right answers, in a sandbox, and with the hidden cases. Each stands in a file with
    right answers to other gaps."""
    part, added = _at(part, SITE), hidden.cases()
    texts = [(layer, solved(part.file, **{answer.gap: answer.code for answer in layer})) for layer in layers(answers)]
    of_layers = [(answer, check_of(part, answer), text) for layer, text in texts for answer in layer]

    def cases(check):
        return added.get((unit, part.folder, check.gap), ())

    return _in_bulk(unit, part, of_layers, server, cases, readable())


def by_itself(unit, part, answer, server):
    """{criterion's id: (status, message)} of a wrong answer."""
    check = check_of(part, answer)
    found = verdicts(unit, part, solved(part.file, **{answer.gap: answer.code}), server, [check.gap], site=SITE)
    return {criterion.id: (verdict.status, verdict.message) for criterion, verdict in zip(check.criteria, found)}


def is_caught(found, answer, check):
    """Whether the criterion that is meant fails, and no other one that may not fail. found: {id: (status, message)}."""
    status, _ = found.get(answer.criterion, ("", ""))
    others = {criterion for criterion, (status, _) in found.items() if status != PASSED}
    return status == answer.status and others <= may_fail(answer, check)


def is_right(found):
    """Whether a right answer passed all criteria in bulk. If not, it may have been the fault of other answers: it has
    to be judged in its layer."""
    return bool(found) and all(status == PASSED for status, _ in found.values())


def may_fail(answer, check):
    """The ids of the criteria of a check that may fail for a wrong answer: those named, and those that need one of
    these."""
    ids = {answer.criterion, *answer.also}
    while more := {criterion.id for criterion in check.criteria if criterion.needs in ids} - ids:
        ids |= more
    return ids


def layers(right):
    """The right answers to a file's gaps as lists of which each has one for every gap at most, so that they can be
    judged in one file."""
    of_gaps = {}
    for answer in right:
        of_gaps.setdefault(answer.gap, []).append(answer)
    most = max(map(len, of_gaps.values()), default=0)
    return [[of_gap[number] for of_gap in of_gaps.values() if number < len(of_gap)] for number in range(most)]


def judged_layer(unit, part, layer, server):
    """The verdicts on right answers that stand in one file."""
    code = {answer.gap: answer.code for answer in layer}
    return verdicts(unit, part, solved(part.file, **code), server, code, hidden.cases(), SITE)


def _at(part, site):
    """A part whose checks judge job scripts as at a site."""
    if not part.file.endswith(".sh"):
        return part
    return replace(
        part,
        checks=tuple(
            replace(check, cases=tuple(case | {"site": site} for case in check.cases)) for check in part.checks
        ),
    )


def _in_bulk(unit, part, answers, server, added=lambda check: (), readable=None):
    """What `wrong_in_bulk` returns, for [(answer, its check, the text of the file)]. added: the hidden cases of a
    check."""
    given = {
        f"{answer.gap} {answer.name}": (answer, check, judging._source(check, part, text))
        for answer, check, text in answers
    }
    cases = {check.gap: judging._cases(unit, check, added(check), SEED) for _, check, _ in given.values()}
    run_probes.foresee([(check, cases[check.gap]) for check in part.checks if check.gap in cases], server)
    judged = {}
    for whole, most in ((False, TOGETHER), (True, TOGETHER_WHOLE)):
        of_kind = {name: replace(check, gap=name) for name, (_, check, _) in given.items() if check.whole == whole}
        sources = {name: given[name][2][0] for name in of_kind}
        of_each = {name: cases[given[name][1].gap] for name in of_kind}
        together = run_probes.together(of_kind.values(), of_each, sources, server, readable, LIMITS, most)
        for name, seen in together.items():
            answer, check, source = given[name]
            found, _ = judging._apply(check, of_each[name], source, server, readable, seen)
            judged[answer] = {criterion.id: one[:2] for criterion, one in zip(check.criteria, found)}
    return judged
