"""Known answers, wrong and right, which prove that the checks work. Students never receive them.

grader/units/topic/instructors/known_TRACK.toml lists them for the gaps of one track's files ("shared": files that both
tracks share); where they are many, known_TRACK_*.toml have more:

    [[mutant]]     a plausible wrong answer: gap, name, code; criterion: the title of the one that must fail; message:
        words that a
                   student must then read; also: titles of other criteria that may fail; check: the check that is meant,
                       if not the gap's
    [[variant]]    a right answer that is written in another way: gap, name, code

Those of job scripts are written for the site `local`, and judged as there.
"""

import contextlib
import functools
import tomllib
from dataclasses import replace

from grader import exercises, gaps, judging, run_probes
from grader.instructors import hidden
from grader.instructors.grade.work import readable
from grader.probes import FOR_FRAMEWORKS, FOR_NOTEBOOKS, FOR_SCRIPTS, loaded_for
from grader.sandbox import Limits, Server
from grader.verdict import FAILED, PASSED
from handson.files import COURSE

UNITS = COURSE / "grader/units"
SITE = "local"
SEED = 0  # of the inputs; `make bench ARGS=seeds` judges under many
# cases that run in the same processes, of a gap and of a whole script: a rank may answer a few megabytes
TOGETHER, TOGETHER_WHOLE = 40, 6
LIMITS = Limits(cpu_seconds=120, wall_seconds=300, memory_bytes=2 << 30)  # of so many cases together


@functools.cache  # a file has a thousand lines, and is asked for again and again
def known(unit, track):
    """(mutants, variants) of one track of a unit, each a list of dictionaries."""
    folder, name = UNITS / unit / "instructors", f"known_{track or 'shared'}"
    files = [
        tomllib.loads(path.read_text())
        for path in sorted([*folder.glob(f"{name}.toml"), *folder.glob(f"{name}_*.toml")])
    ]
    return tuple([entry for file in files for entry in file.get(kind, ())] for kind in ("mutant", "variant"))


def of_part(unit, part):
    """(mutants, variants) of one file of a unit."""
    names = {check.gap for check in part.checks}
    return tuple([entry for entry in entries if entry["gap"] in names] for entries in known(unit, part.folder))


@contextlib.contextmanager
def servers():
    """A function: the sandbox's server for a file, as grading chooses it. All of them are stopped at the end."""
    found = {libraries: Server(libraries) for libraries in (FOR_SCRIPTS, FOR_NOTEBOOKS, FOR_FRAMEWORKS)}
    try:
        yield lambda file: found[loaded_for([file])]
    finally:
        for server in found.values():
            server.stop()


def solved(file, **instead):
    """The text of an exercise with all gaps filled: those named in `instead` with its code, the remaining ones from the
    solution."""
    return gaps.fill(exercises.given_out(file), {**gaps.answers(exercises.solution(file).read_text()), **instead})


def verdicts(unit, part, text, server, names=None, cases=None, site=None):
    """The verdicts on a file, or on its checks called `names`, judged in a sandbox as `grade` does. cases: hidden ones;
    site: where a job script is judged; else the chosen one."""
    checks = tuple(check for check in (_at(part, site) if site else part).checks if names is None or check.gap in names)
    return list(
        judging.judge(unit, (replace(part, checks=checks),), lambda file: text, server, cases, readable(), SEED)
    )


def check_of(part, answer):
    """The check that a known answer is meant for."""
    return next(check for check in part.checks if check.gap == answer.get("check", answer["gap"]))


def mutants_in_bulk(unit, part, server):
    """{(gap, name): {criterion: (status, message)}} of the mutants of a file's gaps, which run in the same ranks, as
    the gaps of a file do. Those that don't share their ranks with others, since they end them or hang, are left out."""
    part = _at(part, SITE)
    mutants = [mutant for mutant in of_part(unit, part)[0] if "status" not in mutant]
    texts = [(mutant, solved(part.file, **{mutant["gap"]: mutant["code"]})) for mutant in mutants]
    return _in_bulk(unit, part, [(mutant, check_of(part, mutant), text) for mutant, text in texts], server)


def variants_in_bulk(unit, part, server):
    """As `mutants_in_bulk`, but of the variants, in a sandbox, and with the hidden cases. Each stands in a file with
    variants of other gaps."""
    part, added = _at(part, SITE), hidden.cases()
    texts = [
        (layer, solved(part.file, **{variant["gap"]: variant["code"] for variant in layer}))
        for layer in layers(unit, part)
    ]
    variants = [(variant, check_of(part, variant), text) for layer, text in texts for variant in layer]
    return _in_bulk(
        unit, part, variants, server, lambda check: added.get((unit, part.folder, check.gap), ()), readable()
    )


def mutant_by_itself(unit, part, mutant, server):
    """{criterion: (status, message)} of a mutant."""
    text = solved(part.file, **{mutant["gap"]: mutant["code"]})
    found = verdicts(unit, part, text, server, [check_of(part, mutant).gap], site=SITE)
    return {verdict.check: (verdict.status, verdict.message) for verdict in found}


def is_caught(found, mutant, check):
    """Whether the criterion that is meant fails with the message, and no other one that may not fail. found:
    {criterion: (status, message)}."""
    status, message = found.get(mutant["criterion"], ("", ""))
    others = {criterion for criterion, (status, _) in found.items() if status != PASSED}
    return status == mutant.get("status", FAILED) and mutant["message"] in message and others <= may_fail(mutant, check)


def is_right(in_bulk, variant):
    """Whether a variant passed all criteria in bulk. If not, it may have been the fault of others: it has to be judged
    in its layer."""
    found = in_bulk.get((variant["gap"], variant["name"]))
    return bool(found) and all(status == PASSED for status, _ in found.values())


def may_fail(mutant, check):
    """The titles of the criteria of a check that may fail for a wrong answer: those named, and those that need one of
    these."""
    titles = {mutant["criterion"], *mutant.get("also", ())}
    while more := {criterion.title for criterion in check.criteria if criterion.needs in titles} - titles:
        titles |= more
    return titles


def layers(unit, part):
    """The variants of a file as lists of which each has one for every gap at most, so that they can be judged in one
    file."""
    of_gaps = {}
    for variant in of_part(unit, part)[1]:
        of_gaps.setdefault(variant["gap"], []).append(variant)
    most = max(map(len, of_gaps.values()), default=0)
    return [[of_gap[number] for of_gap in of_gaps.values() if number < len(of_gap)] for number in range(most)]


def judged_layer(unit, part, layer, server):
    """The verdicts on variants that stand in one file."""
    code = {variant["gap"]: variant["code"] for variant in layer}
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
    """What `mutants_in_bulk` returns, for [(known answer, its check, the text of the file)]. added: the hidden cases of
    a check."""
    given = {
        " ".join((answer["gap"], answer["name"])): (answer, check, judging._source(check, part, text))
        for answer, check, text in answers
    }
    cases = {check.gap: judging._cases(unit, check, added(check), SEED) for _, check, _ in given.values()}
    run_probes.foresee([(check, cases[check.gap]) for check in part.checks if check.gap in cases], server)
    judged = {}
    for whole, most in ((False, TOGETHER), (True, TOGETHER_WHOLE)):
        of_kind = {name: replace(check, gap=name) for name, (_, check, _) in given.items() if check.whole == whole}
        sources, of_each = (
            {name: given[name][2][0] for name in of_kind},
            {name: cases[given[name][1].gap] for name in of_kind},
        )
        for name, seen in run_probes.together(
            of_kind.values(), of_each, sources, server, readable, LIMITS, most
        ).items():
            answer, check, source = given[name]
            found, _ = judging._apply(check, of_each[name], source, server, readable, seen)
            judged[answer["gap"], answer["name"]] = {
                criterion.title: one[:2] for criterion, one in zip(check.criteria, found)
            }
    return judged
