"""``python -m grader grade``: grade a folder of submissions into a gradebook and reports. After an interruption, the
same command continues."""

import json
import os
import re
import sys
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from tqdm import tqdm

from grader import sandbox
from grader.course import UNITS, ready
from grader.instructors import adjustments, rules, worksheet
from grader.instructors.collect import NAMELESS, Listed, alike, collect, names, newest, numbered_by_moodle, unpacked
from grader.instructors.grade import digest, dispatch, ipp_cluster, seeds, work
from grader.instructors.grade.ipp_cluster import ControllerLost, EnginesLost
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import PROGRESS, note_absent, outdated, scores_of, write_reports
from grader.instructors.reports.in_words import changes, some, summary, total
from grader.instructors.reports.report_files import write
from grader.probes import loaded_for
from handson import frameworks
from handson.cluster import site as sites
from handson.errors import OneSentence
from handson.words import counted

RESTARTS = 5  # largest number of cluster restarts, if its controller ends each time
KEEPING = 0.5  # seconds for which results are collected, to write them to the disk together
SETTLED = 60  # seconds after which the rate of grading predicts the remaining time
LINE = "{n_fmt} of {total_fmt} pieces graded, {rate_fmt}, {remaining} left"


class GradeError(OneSentence, RuntimeError):
    """The reason why nothing is graded."""


def grade(
    submissions,
    out,
    engines=2,
    profile=None,
    cluster_file=None,
    trusted=False,
    force=False,
    units=None,
    say=print,
    sheet=None,
):
    """Grade `submissions`, a folder or a learning platform's zip, into the folder `out`, on `engines` engines started
    here, or on those of a running cluster.

    trusted: run students' code without a sandbox; force: grade everything again; units: grade only these; sheet: the
    path of Moodle's grading worksheet. Raises OneSentence errors.
    """
    # the engines of a running cluster report it themselves
    named, units = units, _units(units, trusted or profile or cluster_file)
    if out.resolve().is_relative_to(submissions.resolve()) or submissions.resolve().is_relative_to(
        (out / "submissions").resolve()
    ):
        raise GradeError(
            f"{out} can't be written where submissions are read ({submissions}): name another folder with --out"
        )
    course = rules.at_its_site()
    # includes all units, because the digest must not depend on `units`
    expected = [part.file for parts in UNITS.values() for part in parts]
    of_moodle = worksheet.read(sheet) if sheet else worksheet.kept(out)
    listed = of_moodle.listed(course.zone) if of_moodle else []
    there = names(submissions, listed)  # unreadable submissions are refused here, before anything is written to `out`
    given_out = numbered_by_moodle(submissions)
    strangers = len(_strange(there, listed, course)) == len(there) > 0
    if sheet and (strangers or _of_another(given_out, listed, course)):
        raise GradeError(
            f"{sheet} is not the worksheet of {submissions}: it has none of {some(there)}. Download both from the same"
            " assignment"
        )
    with Gradebook(out) as book:
        people, before = worksheet.people(book.attempts(), out), totals(book)
        listed = of_moodle.listed(course.zone, people, set(worksheet.mails(out).values())) if of_moodle else []
        if not sheet and _of_another(given_out, listed + _in_gradebook(people, book, listed), course):
            raise GradeError(
                f"{submissions} is of another assignment of Moodle's than what is graded in {out}: name its grading"
                " worksheet with --worksheet, and its unit with --unit"
            )
        alone = None  # the unit whose assignment the worksheet belongs to
        if sheet:
            unit = units[0] if named and len(units) == 1 else None
            alone = None if worksheet.keep(sheet, out, unit) else unit
            clocks = course.zone or "this machine; name their zone in course.toml"
            say(f"Submission times: from Moodle's worksheet, on the clock of {clocks}.")
        else:  # the worksheet is from an earlier call, so only its names count
            listed = [one._replace(handed_in=None) for one in listed]
        if alone:
            say(f"The worksheet belongs to the assignment of one unit: its grades are in moodle_{alone}.csv.")
            units = [one for one in UNITS if one == alone or one in worksheet.kept_for_units(out) and one in ready()]
        known = listed + _in_gradebook(people, book, listed)
        collected = collect(submissions, out / "submissions", expected, say, known, course.zone)
        book.record(collected)
        missing = _say_collected(book, collected, submissions, of_moodle, sheet, listed, course, named, say)
        where, paths = _Where(engines, profile, cluster_file, trusted), {one: one.path for one in collected}
        of_class = _grade_what_counts(book, course, units, where, say, before, paths, force)
        if sheet and (sentence := worksheet.of_one_unit(out, of_class)):
            say(sentence)
        elif of_moodle and of_class and (sentence := of_moodle.too_low(_highest(of_class[0], alone))):
            say(sentence)
        if earlier := sum(len(score.earlier) for score in of_class):
            say(
                f"Set by hand for earlier submissions, and not counted now: {earlier}; see `python -m grader adjust"
                f" {out} --list`"
            )
        say(summary(of_class, missing))
        say(f"Grades are in {out / 'grades.csv'}, the report on the class is {out / 'report.html'}")


def _highest(score, unit):
    """Return the highest grade of the course, or of a unit with its own assignment."""
    return sum(one.max_points for one in score.units if one.name == unit) if unit else score.highest


def _say_collected(book, collected, submissions, of_moodle, sheet, listed, course, named, say):
    """Report which students have submitted, and which are missing. Return the number of missing students. listed: the
    students in the worksheet `of_moodle`; sheet: its path, if it was given with `submissions`."""
    counting = newest(collected)
    absent = sorted({one.student for one in book.submissions()} - {one.student for one in collected})
    submitted = of_moodle.missing(collected, course.groups, listed) if of_moodle else []
    unseen = [student for student in submitted if student not in absent]
    note_absent(book.folder, absent + unseen)
    say(f"{counted(len(counting), 'student')}, {counted(len(collected), 'submission')}.")
    for sentence in rules.in_gradebook(course, book.attempts()).unknown:
        say(sentence)
    for unit in () if named else _left_out(collected, course):
        say(f"{unit} was handed in, but is not graded: {frameworks.why_not()}")
    repaired = {one.student for one in book.submissions() if one.refused is None}
    for submission in (one for one in counting if one.refused and one.student not in repaired):
        say(f"{submission.student}: not graded, {submission.refused}")
    if strange := _strange([one.student for one in counting], listed, course) if sheet else ():
        say(f"In {submissions}, but not in the worksheet, and so not in moodle.csv: {', '.join(strange)}.")
    if unseen:
        say(
            f"Submitted according to Moodle's worksheet, but not in {submissions}: {', '.join(unseen)}. Download"
            " the submissions again; texts that were typed in Moodle are not graded."
        )
    if absent:
        say(f"In the gradebook, but not in this download: {', '.join(absent)}.")
    return len(absent) + len(unseen)


@dataclass(frozen=True)
class _Where:
    """The place of grading: engines that are started here, or those of a running cluster."""

    engines: int = 2
    profile: str | None = None
    cluster_file: object = None
    trusted: bool = False


def _strange(students, listed, course):
    """Return the students who are not in a worksheet, not even through a group. listed: the students in it."""
    numbers, groups = {one.number for one in listed}, [*course.groups, *(one.group for one in listed if one.group)]
    known = {alike(name) for name in (*groups, *(name for one in listed for name in (one.student, one.name)))}
    plain = {student: re.fullmatch(r"(.*?)(?:_(\d+))?", student, re.DOTALL | re.ASCII) for student in students}
    return [
        student
        for student, (name, number) in ((student, match.groups()) for student, match in plain.items())
        if number not in numbers and not {alike(student), alike(name)} & known
    ]


def _of_another(given_out, listed, course):
    """Return whether the students of a download have `listed` names but unknown numbers, because Moodle numbers
    students separately in each assignment. given_out: the result of `numbered_by_moodle`."""
    groups = {alike(name) for name in (*course.groups, *(one.group for one in listed if one.group))}
    students = {(alike(name), number) for name, number in given_out if alike(name) not in groups | {NAMELESS}}
    known = {alike(one.name) for one in listed if one.number}
    same_name = any(name in known for name, _ in students)
    return same_name and not {number for _, number in students} & {one.number for one in listed}


def totals(book):
    """Return {student: the grade in short} of those who have results."""
    return {score.student: total(score) for score in scores_of(book) if score.units}


def _grade_what_counts(book, course, units, where, say, before, paths=(), force=False, students=None):
    """Grade all attempts that may count in `units`, that have files here and no current result, and write the reports.
    Return the Scores.

    before: the `totals` with which changes are reported; paths: {Submission: its files} of this call; other files are
    where `collect` has unpacked them. force: also grade attempts with a current result; students: only the attempts of
    these.
    """
    resources = "trusted" if where.trusted else "sandbox"
    versions, pairs, done, first = digest.of_units(units, course, book), [], set(), True
    _say_sites(versions, book, say)
    try:
        while True:  # repeated, because an earlier attempt may count if a later one turns out to be untouched
            pairs = _that_may_count(book, course, units, students)
            missing = pairs if force else book.what_is_missing(pairs, versions, resources)
            missing = [pair for pair in missing if (pair[0].student, pair[0].digest, pair[1]) not in done]
            missing, gone = _located(missing, paths, book.folder / "submissions")
            if first:
                say(f"{len(missing)} of {len(pairs)} pieces of work to grade.")
                _say_gone(gone, book, say)
            if not missing:
                break
            first = False
            done |= {(one.student, one.digest, unit) for one, unit in missing}
            _grade(book, missing, versions, resources, seeds.secret(book.folder), where, say)
    except BaseException as error:
        with suppress(OneSentence):  # the error that stopped the grading is reported, not a second one from the reports
            # with --force, the same command would start from the beginning
            if isinstance(error, (KeyboardInterrupt, SystemExit)) and not force:
                left = len(book.what_is_missing(pairs, versions, resources))
                say(f"{len(pairs) - left} of {len(pairs)} pieces graded; the same command continues.")
            write_reports(book, book.folder)
        raise
    write_reports(book, book.folder)
    of_class = scores_of(book)
    for line in changes(before, of_class):
        say(line)
    if sentence := outdated(book):
        say(sentence)
    for score in of_class:
        for reason in (one for one in score.flagged if one.startswith("In ")):
            say(f"{score.student}: {reason}")
    return of_class


def _say_sites(versions, book, say):
    """Report the units whose job scripts are checked for a site other than the chosen one."""
    for unit, version in versions.items():
        if (site := digest.site_of(version)) not in (None, sites.chosen()):
            number = sum(of == unit for _, _, of in book.versions())
            say(
                f"{unit} is checked for the site {site}, as {counted(number, 'result')} so far, and not for"
                f" {sites.chosen()}: a line `site` in [units.{unit}] of course.toml changes that."
            )


def _that_may_count(book, course, units, students):
    """Return the (Submission, unit) pairs of readable attempts that may count; one pair for equal files."""
    attempts = book.attempts()
    no_attempts = book.untouched() | worksheet.of_other_units(attempts, book.folder)
    wanted, found = rules.to_grade(course, attempts, units, no_attempts), {}
    for one in attempts:
        for unit in units:
            key = one.student, one.digest, unit
            if key in wanted and one.refused is None and (students is None or one.student in students):
                found[key] = one, unit
    return list(found.values())


def _located(pairs, paths, folder):
    """Return (the pairs, with the paths of their files; the pairs whose files are missing)."""
    places = {(one.student, one.digest): path for one, path in dict(paths).items()}
    for one, _ in pairs:
        places.setdefault((one.student, one.digest), unpacked(one, folder))
    there = [(replace(one, path=path), unit) for one, unit in pairs if (path := places[one.student, one.digest])]
    return there, [(one, unit) for one, unit in pairs if not places[one.student, one.digest]]


def _say_gone(pairs, book, say):
    """Name attempts that may count and have no current result, but whose files are missing."""
    units = defaultdict(list)
    for one, unit in pairs:
        units[f"{one.student}, attempt {one.attempt}"].append(unit)
    if units:
        names = "; ".join(f"{who} ({', '.join(of)})" for who, of in units.items())
        say(
            f"Not graded by these checks, and not in {book.folder / 'submissions'} any more: {names}. They may count:"
            " grade the earlier download that has them, with the same --out, and then this one again."
        )


def _left_out(collected, course):
    """Return the units that count and were handed in, but whose packages are not installed."""
    handed_in = [one for one in collected if one.refused is None]
    left_out = [unit for unit in UNITS if unit not in ready() and course.of(unit).points != 0]
    return [
        unit for unit in left_out if any((one.path / part.file).is_file() for one in handed_in for part in UNITS[unit])
    ]


def _in_gradebook(people, book, listed):
    """Return the gradebook's students as Listed, with each of their numbers that is not `listed` already."""
    there = {one.number or one.student for one in listed}
    names = {one.student: one.name for one in book.submissions()}
    return [
        Listed(person.student, names[person.student], number)
        for person in people
        for number in sorted(person.numbers) or [""]
        if (number or person.student) not in there
    ]


def again(out, student=None, units=None, engines=2, trusted=False, say=print):
    """Grade again the attempts that may count of a student or of a group, from the files that earlier calls of `grade`
    have unpacked below `out`; or, without a student, all attempts with results of older checks.

    units: by default those in which the class has results, because the first result in another unit would make all
    grades incomplete. Otherwise like `grade`.
    """
    named = _units(units, trusted)
    with Gradebook(out, writing=False):
        pass  # raises if there is no gradebook
    with Gradebook(out) as book:
        course, of_class = rules.read(), scores_of(book)
        whose = None if student is None else adjustments.student_of(book, student)
        if whose is not None and not any(whose in (one.student, one.group) for one in of_class):
            raise GradeError(f"there is no student {student!r} in {out}: see the first column of grades.csv")
        with_results = {unit.name for score in of_class for unit in score.units}
        units = [
            unit
            for unit in named
            if (units or unit in with_results or not with_results) and course.of(unit).points != 0
        ]
        if not units:
            raise GradeError(f"there is nothing to grade in {', '.join(named)}: course.toml gives no points for it")
        pool = [one for score in of_class if whose in (score.student, score.group) for one in score.attempts]
        if whose is not None:
            _refuse_unreadable(whose, pool, out)
        where, students = _Where(engines, trusted=trusted), {one.student for one in pool} if whose else None
        of_class = _grade_what_counts(book, course, units, where, say, totals(book), (), whose is not None, students)
        say(f"{whose} is graded again: see {out / 'report.html'}" if whose else summary(of_class))


def _refuse_unreadable(student, pool, out):
    """Raise GradeError if the last attempt of a student cannot be read, or its files are missing."""
    last = pool[-1]
    readable = [one for one in pool if one.refused is None]
    if not readable or unpacked(readable[-1], out / "submissions") is None:
        why = last.refused or f"it is not in {out} any more; run `python -m grader grade` again"
        raise GradeError(f"what {student} has handed in can't be graded: {why}")


def _units(units, trusted):
    """Return the units to grade, by default all. Raises GradeError for an unknown name, or without a sandbox."""
    if not trusted and not sandbox.strong():
        raise GradeError(
            f"{sandbox.missing()} See `python -m grader doctor`, or give --trusted to run students' code as your own"
        )
    if unknown := [unit for unit in units or () if unit not in UNITS]:
        raise GradeError(f"there is no unit {unknown[0]}: choose from {', '.join(UNITS)}")
    there = ready()
    if missing := [unit for unit in units or () if unit not in there]:
        raise GradeError(f"{missing[0]} can't be graded: {frameworks.why_not()}")
    return units or there


def _grade(book, missing, versions, resources, secret, where, say):
    """Grade the (submission, unit) pairs `missing`, and store each pair as soon as all of its pieces are done."""
    left = {(submission.student, submission.digest, unit): submission for submission, unit in missing}
    handed_in = {
        part.file for submission, unit in missing for part in UNITS[unit] if (submission.path / part.file).is_file()
    }
    libraries = {loaded_for([file]) for file in handed_in}
    profile, cluster_file, trusted = where.profile, where.cluster_file, where.trusted
    elsewhere = profile or cluster_file
    with _progress(len(missing), book.folder, say) as tick:
        for _ in range(RESTARTS):
            place = (
                ipp_cluster.running(profile, cluster_file, trusted)
                if elsewhere
                else ipp_cluster.started(where.engines, libraries)
            )
            with place as there:
                try:
                    return _grade_on(there, left, book, versions, resources, secret, trusted, tick)
                except ControllerLost:
                    if elsewhere:
                        raise ipp_cluster.ClusterError(
                            f"the controller of {ipp_cluster.name(profile, cluster_file)} has lost a process, or has"
                            f" not answered for {ipp_cluster.SILENCE:.0f} seconds; start the cluster again with"
                            f" `ipcluster start`: the same command continues with the {len(left)} remaining pieces"
                        ) from None
                    say("The cluster's controller has ended; starting another. Unfinished pieces are graded again.")
                except EnginesLost:
                    if elsewhere:
                        why = (
                            f"no engine of {ipp_cluster.name(profile, cluster_file)} answers any more: start"
                            " engines, and"
                        )
                    else:
                        why = f"the engines ended, and no new one has started in {ipp_cluster.STARTING} seconds:"
                    raise ipp_cluster.ClusterError(
                        f"{why} run the same command again; it continues with the {len(left)} remaining pieces"
                    ) from None
    raise ipp_cluster.ClusterError(
        f"the cluster's controller ended {RESTARTS} times; {len(left)} pieces are left: run the same command again"
    )


def _grade_on(engines, left, book, versions, resources, secret, trusted, tick):
    open_pieces, verdicts, finished = {}, defaultdict(list), []
    kept = 0.0

    def pieces():
        for key, submission in list(left.items()):
            made = work.pieces(submission, key[-1], secret, digest.site_of(versions[key[-1]]))
            open_pieces[key] = len(made)
            for piece in made:
                if piece.data is None:
                    take(piece, work.not_handed_in(piece))
                else:
                    yield piece

    def take(piece, found):
        key = piece.student, piece.digest, piece.unit
        verdicts[key] += found
        open_pieces[key] -= 1
        if open_pieces[key] == 0:
            finished.append(key)

    def keep():
        with book.together():
            for key in finished:
                book.store(left[key], key[-1], work.in_order(key[-1], verdicts[key]), versions[key[-1]], resources)
        for key in finished:
            del left[key], verdicts[key], open_pieces[key]
            tick(key, len(engines.ids()))
        finished.clear()

    try:
        for piece, found in dispatch.results(engines, pieces(), trusted):
            take(piece, found)
            if finished and time.monotonic() - kept > KEEPING:
                keep()
                kept = time.monotonic()
    finally:
        keep()


@contextmanager
def _progress(pieces, folder, say):
    """Context manager with a function to call after each graded unit of a student. It shows the number, the rate and
    the remaining time: as a bar in a terminal, otherwise in about 20 lines. It also writes the number to `folder`, for
    `serve`."""
    terminal, lines = sys.stderr.isatty(), max(1, pieces // 20)
    with open(os.devnull, "w") as nowhere:
        where = {"file": sys.stderr} if terminal else {"file": nowhere, "bar_format": LINE}
        # no smoothing, because units finish in bursts
        with tqdm(total=pieces, unit="piece", desc="graded", smoothing=0, **where) as bar:

            def note():
                with suppress(OneSentence):  # a full disk stops the grading when results are stored
                    write(folder / PROGRESS, json.dumps({"done": bar.n, "pieces": pieces}))

            def tick(key, engines):
                bar.set_postfix_str(f"{engines} engines, {key[0]}: {key[-1]}"[:60], refresh=False)
                bar.update()
                if not terminal and (bar.n % lines == 0 or bar.n in (1, pieces)):
                    soon = bar.format_dict["elapsed"] < SETTLED and bar.n < pieces
                    say(f"{str(bar).rpartition(', ')[0] if soon else bar} ({engines} engines)")
                if time.monotonic() - noted[0] > KEEPING:
                    note()
                    noted[0] = time.monotonic()

            noted = [time.monotonic()]
            note()
            try:
                yield tick
            finally:
                with suppress(OSError):
                    (folder / PROGRESS).unlink()
