"""``python -m grader verify``: proves the checks on known answers, as tests/grader/test_mutants.py does, and says what
a unit lacks."""

from collections import Counter

from tqdm import tqdm

from grader import exercises
from grader.course import UNITS, ready
from grader.instructors import hidden, rules
from grader.instructors import known_answers as known
from grader.instructors.release import release
from grader.sandbox import SandboxFault
from grader.verdict import NOT_ATTEMPTED, PASSED
from handson.cluster import job_scripts
from handson.cluster import site as sites
from handson.errors import OneSentence
from handson.files import COURSE

# of a known mistake by itself: on a very busy machine, ranks that wait for each other run into their time limit
TRIES = 2


class VerifyError(OneSentence, ValueError):
    """A sentence: there is no such unit."""


def verify(units=None, say=print):
    """Read course.toml, prove the checks of some units (default: all) at the chosen site, and say a sentence on each
    thing that is wrong. Returns whether nothing is. Raises OneSentence errors."""
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
    answers = sum(
        len(entries) for unit, parts in chosen.items() for part in parts for entries in known.of_part(unit, part)
    )
    right = (
        f"The checks of {', '.join(chosen)} are right about the solutions, the untouched exercises and {answers} known"
        " answers."
    )
    say(f"{len(found)} of these sentences: put right what they name, then verify again." if found else right)
    return not found


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
    folder = f"grader/units/{unit}/instructors"
    titles = {
        (part.track, check.gap, criterion.title): part
        for part in parts
        for check in part.checks
        for criterion in check.criteria
    }
    by_file = {}
    for part in parts:
        by_file.setdefault(part.folder, set()).update(check.gap for check in part.checks)
    for track, gaps in by_file.items():
        file = f"{folder}/known_{track or 'shared'}.toml"
        answers = Counter(entry.get("check", entry["gap"]) for entries in known.known(unit, track) for entry in entries)
        for gap, number in answers.items():
            if gap not in gaps:
                yield (
                    f"{file} has known answers ({number}) to {gap}, which has no check: correct the name, or remove"
                    " them"
                )
    for track, gap, title in sorted(_meant(unit, parts) - titles.keys()):
        yield f'{unit}: a known mistake in {gap} names the criterion "{title}", which the check of {gap} does not have'
    # several units have the same criteria
    proved = set().union(_meant(unit, parts), *(_meant(*of_unit) for of_unit in UNITS.items()))
    for (track, gap, title), part in titles.items():
        if (track, gap, title) not in proved:
            yield (
                f'{unit}, {part.file}: no known mistake proves "{title}" of {gap}: add a [[mutant]] to'
                f" {folder}/known_{part.folder or 'shared'}.toml"
            )
    for of_unit, track, gap in hidden.cases():
        if of_unit == unit and gap not in by_file.get(track, ()):
            yield (
                f"{folder}/hidden_{track or 'shared'}.toml has cases for {gap}, which has no check: correct the name,"
                " or remove them"
            )
    points = {}
    for part in parts:
        points[part.track] = points.get(part.track, 0) + sum(
            criterion.points for check in part.checks for criterion in check.criteria
        )
    points.pop("", None)
    if len(set(points.values())) > 1:
        yield (
            f"{unit}: the tracks have different points"
            f" ({', '.join(f'{track} {number:g}' for track, number in points.items())}): make them equal"
        )


def _meant(unit, parts):
    """The criteria that known mistakes of a unit are meant for, as (track, check, title)."""
    return {
        (part.track, mutant.get("check", mutant["gap"]), mutant["criterion"])
        for part in parts
        for mutant in known.of_part(unit, part)[0]
    }


def problems(unit, part, server):
    """Yields a sentence for each known answer to a file's gaps that its checks judge wrongly."""
    where = f"{unit}, {part.file}"
    try:
        wrong = [
            verdict
            for verdict in known.verdicts(unit, part, _solution(part), server, cases=hidden.cases())
            if verdict.status != PASSED
        ]
        for verdict in wrong:
            yield f'{where}: the solution of {verdict.gap} gets no points for "{verdict.check}": {verdict.message}'
        for verdict in known.verdicts(unit, part, exercises.given_out(part.file).text, server):
            if verdict.status != NOT_ATTEMPTED:
                yield f'{where}: {verdict.gap} as it is given out counts as {verdict.status} for "{verdict.check}"'
        if wrong:
            return  # then most known answers would be judged wrongly, too
        in_bulk = known.mutants_in_bulk(unit, part, server)
        for mutant in known.of_part(unit, part)[0]:
            check, found = known.check_of(part, mutant), in_bulk.get((mutant["gap"], mutant["name"]), {})
            for _ in range(TRIES):
                if not known.is_caught(found, mutant, check):
                    found = known.mutant_by_itself(unit, part, mutant, server)
            if not known.is_caught(found, mutant, check):
                status, message = found[mutant["criterion"]]
                yield (
                    f'{where}: the mistake "{mutant["name"]}" in {mutant["gap"]} is not caught as it should by'
                    f' "{mutant["criterion"]}": {status} {message}'
                )
        in_bulk = known.variants_in_bulk(unit, part, server)
        for layer in known.layers(unit, part):
            if all(known.is_right(in_bulk, variant) for variant in layer):
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
    text = known.solved(part.file)
    return job_scripts.fitted(text, sites.read(sites.chosen())) if part.file.endswith(".sh") else text
