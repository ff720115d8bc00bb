"""``python -m grader verify``: proves the checks on the solutions, the untouched exercises and the known answers, and
says what a unit lacks. The tests call the same functions."""

import re
import tempfile
from collections import Counter
from pathlib import Path

from tqdm import tqdm

from answers import known
from answers import seeds as under_seeds
from answers.proofs import proof_jobs, proof_notebooks, proof_ranks, proof_scripts
from grader import exercises
from grader.course import UNITS, ready
from grader.exercises import solved
from grader.instructors import hidden, rules
from grader.instructors.release import release
from grader.sandbox import SandboxFault
from grader.verdict import FAILED, NOT_ATTEMPTED, PASSED
from handson.cluster import job_scripts
from handson.cluster import site as sites
from handson.errors import OneSentence
from handson.files import COURSE
from handson.words import counted

TRIES = (
    2  # of a wrong answer by itself: on a very busy machine, ranks that wait for each other run into their time limit
)

NUMBER = re.compile(r"[\d.]+")


class VerifyError(OneSentence, ValueError):
    """A sentence: there is no such unit."""


def verify(units=None, say=print, seeds=0, real=False):
    """Read course.toml, prove the checks of some units (default: all) at the chosen site, and say a sentence on each
    thing that is wrong. Returns whether nothing is. Raises OneSentence errors.

    seeds: under how many seeds of its inputs each known answer is judged, too; real: whether all known answers also run
    in the real notebooks, job scripts and training scripts, which takes hours.
    """
    if unknown := [unit for unit in units or () if unit not in UNITS]:
        raise VerifyError(f"there is no unit {unknown[0]}: choose from {', '.join(UNITS)}")
    chosen, found = {unit: parts for unit, parts in UNITS.items() if unit in (units or ready())}, []

    def report(sentences):
        for sentence in sentences:
            found.append(sentence)
            say(sentence)

    say(f"The site is {sites.chosen()}.")
    report(_of_course())
    with (
        known.servers() as server_for,
        tqdm(total=sum(map(len, chosen.values())), unit=" files", leave=False, disable=None) as bar,
    ):
        for unit, parts in chosen.items():
            report(lacking(unit, parts))
            for part in parts:
                report(problems(unit, part, server_for(part.file)))
                bar.update()
            if bar.disable:  # no terminal
                say(f"{unit} is checked: {list(chosen).index(unit) + 1} of {len(chosen)}.")
    if seeds:
        report(under_seeds.problems(chosen, seeds))
    if real:
        report(_in_real_scripts(say))
    answers = sum(
        len(entries) for unit, parts in chosen.items() for part in parts for entries in known.of_part(unit, part)
    )
    right = (
        f"The checks of {', '.join(chosen)} are right about the solutions, the untouched exercises and {answers} known"
        " answers."
    )
    say(f"{counted(len(found), 'thing')} to put right: see above, then verify again." if found else right)
    return not found


def _in_real_scripts(say):
    """Yields a sentence for each known answer that does something else in the real script than it should."""
    for proof in (proof_notebooks, proof_jobs, proof_scripts, proof_ranks):
        with tempfile.TemporaryDirectory(prefix="handson-proof-") as folder:
            for what, value, target in proof.measure(Path(folder)):
                say(f"  {what:<74} {value:>9}  {target}")
                if value != target:
                    yield f"{proof.__name__}: {what}: {value}, and it should be {target}"


def _of_course():
    """Yields a sentence if course.toml is wrong or for another site, and if exercises and notebooks are not what the
    solutions give."""
    try:
        rules.at_its_site()
        release(COURSE / "solutions", COURSE, check=True, say=lambda line: None)
    except OneSentence as error:
        yield str(error)


def lacking(unit, parts):
    """Yields a sentence for each thing that a unit lacks, or has for nothing."""
    for part in parts:
        file = known.file_of(unit, part).relative_to(COURSE)
        checks = {check.gap: {criterion.id for criterion in check.criteria} for check in part.checks}
        wrong, right = known.of_part(unit, part)
        for gap, number in Counter(answer.of_check for answer in (*wrong, *right)).items():
            if gap not in checks:
                yield (
                    f"{file} has known answers ({number}) to {gap}, which has no check: correct the name, or"
                    f" remove them"
                )
        for answer in wrong:
            for id in (answer.criterion, *answer.also):
                if id not in checks.get(answer.of_check, {id}):
                    yield (
                        f'{file}: "{answer.name}" names the criterion {id}, which the check of'
                        f" {answer.of_check} does not have"
                    )
        proved = {(answer.of_check, answer.criterion) for answer in (*wrong, *_of_other_units(unit, part))}
        for gap, ids in checks.items():
            for id in sorted(ids):
                if (gap, id) not in proved:
                    yield (
                        f'{unit}, {part.file}: no wrong answer proves {id} of {gap}: add [{gap}.wrong."NAME"] to {file}'
                    )
        for gap in exercises.given_out(part.file).gaps:
            if gap.name not in {answer.gap for answer in right}:
                yield (
                    f"{unit}, {part.file}: {gap.name} has no right answer but the solution: add"
                    f' [{gap.name}.right."NAME"] to {file}'
                )
    for (of_unit, track, gap), _ in hidden.cases().items():
        if of_unit == unit and gap not in {
            check.gap for part in parts if part.folder == track for check in part.checks
        }:
            yield (
                f"grader/units/{unit}/instructors/hidden_{track or 'shared'}.toml has cases for {gap}, which has no"
                " check: correct the name, or remove them"
            )
    points = {track: sum(of_track) for track, of_track in _points(parts).items()}
    if len(set(points.values())) > 1:
        both = ", ".join(f"{track} {number:g}" for track, number in points.items())
        yield f"{unit}: the tracks have different points ({both}): make them equal"


def _of_other_units(unit, part):
    """Wrong answers to other units' files of the same track, whose gaps may have the same checks."""
    for other, parts in UNITS.items():
        for one in parts:
            if other != unit and one.track == part.track:
                yield from known.of_part(other, one)[0]


def _points(parts):
    """{track: the points of its criteria}, of the tracks that the unit has."""
    found = {}
    for part in parts:
        if part.track:
            found.setdefault(part.track, []).extend(
                criterion.points for check in part.checks for criterion in check.criteria
            )
    return found


def problems(unit, part, server, answers=known.of_part):
    """Yields a sentence for each thing that the checks of a file judge wrongly: the solution, the untouched exercise,
    and known answers. answers: known.of_part, or known.first_of for fewer."""
    where = f"{unit}, {part.file}"
    checked = {check.gap for check in part.checks}  # `lacking` names answers to other gaps
    wrong, right = ([one for one in of_kind if one.of_check in checked] for of_kind in answers(unit, part))
    try:
        refused = [
            verdict
            for verdict in known.verdicts(unit, part, _solution(part), server, cases=hidden.cases())
            if verdict.status != PASSED
        ]
        for verdict in refused:
            yield (f'{where}: the solution of {verdict.gap} gets no points for "{verdict.check}": {verdict.message}')
        for verdict in known.verdicts(unit, part, exercises.given_out(part.file).text, server):
            if verdict.status != NOT_ATTEMPTED:
                yield (f'{where}: {verdict.gap} as it is given out counts as {verdict.status} for "{verdict.check}"')
        if refused:
            return  # then most known answers would be judged wrongly, too
        in_bulk, sentences = known.wrong_in_bulk(unit, part, server, wrong), {}
        for answer in wrong:
            check, found = known.check_of(part, answer), in_bulk.get(answer, {})
            for _ in range(TRIES):
                if not known.is_caught(found, answer, check):
                    found = known.by_itself(unit, part, answer, server)
            if not known.is_caught(found, answer, check):
                failed = {id: message for id, (status, message) in found.items() if status != PASSED}
                status, message = found[answer.criterion]
                yield (
                    f'{where}: the mistake "{answer.name}" in {answer.gap} is not caught as it should be by'
                    f" {answer.criterion}: {status} {message}; these fail: {failed or 'none'}"
                )
            elif answer.status == FAILED and not answer.same_as:
                sentence = answer.of_check, answer.criterion, NUMBER.sub("", found[answer.criterion][1])
                if other := sentences.setdefault(sentence, answer.name) != answer.name and sentences[sentence]:
                    yield (
                        f'{where}: two mistakes in {answer.gap}, "{other}" and "{answer.name}", read the same sentence:'
                        f" {found[answer.criterion][1]}"
                    )
        in_bulk = known.right_in_bulk(unit, part, server, right)
        for layer in known.layers(right):
            if all(known.is_right(in_bulk.get(answer)) for answer in layer):
                continue
            for verdict in known.judged_layer(unit, part, layer, server):
                if verdict.status != PASSED:
                    yield (
                        f'{where}: a right answer to {verdict.gap} gets no points for "{verdict.check}":'
                        f" {verdict.message}"
                    )
    except (OneSentence, SandboxFault) as error:
        yield f"{where}: {error}"


def _solution(part):
    """The text of a file with its solution, as it is at the chosen site."""
    text = solved(part.file)
    return job_scripts.fitted(text, sites.read(sites.chosen())) if part.file.endswith(".sh") else text
