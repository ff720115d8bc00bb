"""``python -m grader grade``: makes a gradebook and reports of a folder of submissions. After an interruption, the same
command goes on."""

import json
import os
import sys
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import replace

from tqdm import tqdm

from grader import sandbox
from grader.course import UNITS, ready
from grader.instructors import rules, worksheet
from grader.instructors.collect import Listed, collect, names, newest, unpacked
from grader.instructors.grade import digest, dispatch, ipp_cluster, seeds, work
from grader.instructors.grade.ipp_cluster import ControllerLost, EnginesLost
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import PROGRESS, note_absent, scores_of, write_reports
from grader.instructors.reports.report_files import write
from grader.probes import loaded_for
from handson import frameworks
from handson.errors import OneSentence

RESTARTS = 5  # the most starts of a cluster, if its controller ends each time
KEEPING = 0.5  # seconds in which results are collected, to write them to the disk together
SETTLED = 60  # seconds after which the rate of grading says how much time is left
LINE = "{n_fmt} of {total_fmt} units graded, {rate_fmt}, {remaining} left"


class GradeError(OneSentence, RuntimeError):
    """A sentence on why nothing is graded."""


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

    trusted: run students' code without a sandbox; force: grade again what has been graded; units: grade only these;
    sheet: the path of Moodle's grading worksheet. Raises OneSentence errors.
    """
    # the engines of a cluster are asked themselves
    named, units = units, _units(units, trusted or profile or cluster_file)
    if out.resolve().is_relative_to(submissions.resolve()) or submissions.resolve().is_relative_to(
        (out / "submissions").resolve()
    ):
        raise GradeError(
            f"{out} can't be written where submissions are read ({submissions}): name another folder with --out"
        )
    course = rules.at_its_site()
    # of all units: the digest must not depend on `units`
    expected = [part.file for parts in UNITS.values() for part in parts]
    resources = "trusted" if trusted else "sandbox"
    versions = {unit: digest.of_unit(unit) for unit in units}
    of_moodle = worksheet.read(sheet) if sheet else worksheet.kept(out)
    listed = of_moodle.listed(course.zone) if of_moodle else []
    names(submissions, listed)  # what can't be read is refused here, and so leaves nothing in `out`
    with Gradebook(out) as book:
        if sheet:
            worksheet.keep(sheet, out)
            say(
                "Handed in: by Moodle's worksheet, on clocks of"
                f" {course.zone or 'this machine; name their zone in course.toml'}."
            )
        else:  # of a worksheet that was kept from another time, only the names count
            listed = [one._replace(handed_in=None) for one in listed]
        collected = collect(
            submissions, out / "submissions", expected, say, listed + _in_gradebook(book, listed), course.zone
        )
        book.record(collected)
        absent = sorted({one.student for one in book.submissions()} - {one.student for one in collected})
        submitted = of_moodle.missing(collected, course.groups) if of_moodle else []
        unseen = [student for student in submitted if student not in absent]
        note_absent(out, absent + unseen)
        attempts = book.attempts()
        wanted = rules.to_grade(course, attempts, units)
        pairs = {
            (one.student, one.digest, unit): (one, unit) for one in collected if one.refused is None for unit in units
        }
        elsewhere = wanted - pairs.keys()  # of attempts in an earlier download
        gone = _gone(attempts, elsewhere - book.all_results().keys()) if elsewhere else []
        pairs = [pair for key, pair in pairs.items() if key in wanted]
        missing = pairs if force else book.what_is_missing(pairs, versions, resources)
        total = len(pairs)
        say(
            f"{len(newest(collected))} students, {len(collected)} submissions; {len(missing)} of {total} units to"
            " grade."
        )
        refused = [submission for submission in newest(collected) if submission.refused]
        for sentence in rules.in_gradebook(course, attempts).unknown:
            say(sentence)
        for unit in () if named else _left_out(collected, course):
            say(f"{unit} is handed in, and not graded: {frameworks.why_not()}")
        for submission in refused:
            say(f"{submission.student}: not graded, {submission.refused}")
        if unseen:
            say(
                f"Submitted according to Moodle's worksheet, but not in {submissions}: {', '.join(unseen)}. Download"
                " the submissions again."
            )
        if gone:
            what_to_do = "grade the earlier download that has them, with the same --out, and then this one again"
            say(f"Not graded yet, and not in {submissions}: {'; '.join(gone)}. They may count: {what_to_do}.")
        if absent:
            say(f"Not handed in this time, but in the gradebook: {', '.join(absent)}.")
        try:
            if missing:
                _grade(
                    book, missing, versions, resources, seeds.secret(out), engines, profile, cluster_file, trusted, say
                )
        except BaseException as error:
            with suppress(OneSentence):  # what stopped the grading is told, not what it keeps the reports from
                # with --force, the same command begins again
                if isinstance(error, (KeyboardInterrupt, SystemExit)) and not force:
                    missing = book.what_is_missing(pairs, versions, resources)
                    say(f"{total - len(missing)} of {total} units graded; the same command goes on.")
                write_reports(book, out)
            raise
        write_reports(book, out)
        of_class = scores_of(book)
        if of_moodle and of_class and (sentence := of_moodle.too_low(of_class[0].max_grade)):
            say(sentence)
        if earlier := sum(len(score.earlier) for score in of_class):
            say(
                f"Set by hand for earlier submissions, and not counted now: {earlier}; see `python -m grader adjust"
                f" {out} --list`"
            )
        say(f"Grades are in {out / 'grades.csv'}, the report on the class is {out / 'report.html'}")


def _left_out(collected, course):
    """The units that count and are handed in, and whose packages are not there."""
    handed_in = [one for one in collected if one.refused is None]
    left_out = [unit for unit in UNITS if unit not in ready() and course.of(unit).points != 0]
    return [
        unit for unit in left_out if any((one.path / part.file).is_file() for one in handed_in for part in UNITS[unit])
    ]


def _gone(attempts, ungraded):
    """Who has which attempts that are `ungraded`, (student, digest, unit) of attempts whose files are not there now, in
    words."""
    found = []
    for one in attempts:
        if units := [unit for unit in UNITS if (one.student, one.digest, unit) in ungraded and one.refused is None]:
            found.append(f"{one.student}, attempt {one.attempt} ({', '.join(units)})")
    return found


def _in_gradebook(book, listed):
    """The students whom the gradebook knows, as Listed, without those who are `listed` already."""
    there = {one.student for one in listed}
    return [
        Listed(one.student, one.name, one.number, "", None) for one in book.submissions() if one.student not in there
    ]


def again(student, out, units=None, engines=2, trusted=False, say=print):
    """Grade again what counts of a student's work, from what an earlier `grade` has unpacked below `out`: by default in
    the units in which the class has results, since the first result in another unit would leave all other grades
    unfinished. Else as `grade`."""
    named = _units(units, trusted)
    with Gradebook(out, writing=False):
        pass  # raises if there is no gradebook
    with Gradebook(out) as book:
        score = next((one for one in scores_of(book) if one.student == student), None)
        if score is None:
            raise GradeError(f"there is no student {student!r} in {out}: see the first column of grades.csv")
        with_results = {unit.name for unit in score.units}
        units = [
            unit
            for unit in named
            if (units or unit in with_results or not with_results) and score.rules.of(unit).points != 0
        ]
        if not units:
            raise GradeError(f"there is nothing to grade in {', '.join(named)}: course.toml gives no points for it")
        versions = {unit: digest.of_unit(unit) for unit in units}
        counting = {unit.name: unit.attempt for unit in score.units if unit.attempt}
        pairs = [(counting.get(unit, score.submission), unit) for unit in units]
        places = {one: unpacked(one, out / "submissions") for one, _ in pairs}
        if gone := next((one for one, place in places.items() if place is None), None):
            raise GradeError(
                f"what {student} has handed in can't be graded:"
                f" {gone.refused or f'it is not in {out} any more; run `python -m grader grade` again'}"
            )
        pairs = [(replace(one, path=places[one]), unit) for one, unit in pairs]
        try:
            _grade(
                book,
                pairs,
                versions,
                "trusted" if trusted else "sandbox",
                seeds.secret(out),
                engines,
                None,
                None,
                trusted,
                say,
            )
        except BaseException:
            with suppress(OneSentence):
                write_reports(book, out)
            raise
        write_reports(book, out)
    say(f"{student} is graded again: see {out / 'report.html'}")


def _units(units, trusted):
    """The units to grade, all of them if `units` is empty. Raises GradeError if there is one of another name, or no
    sandbox."""
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


def _grade(book, missing, versions, resources, secret, engines, profile, cluster_file, trusted, say):
    """Grade the (submission, unit) pairs `missing`, and store each pair as soon as all of its pieces are done."""
    left = {(submission.student, submission.digest, unit): submission for submission, unit in missing}
    handed_in = {
        part.file for submission, unit in missing for part in UNITS[unit] if (submission.path / part.file).is_file()
    }
    libraries = {loaded_for([file]) for file in handed_in}
    elsewhere = profile or cluster_file
    with _progress(len(missing), book.folder, say) as tick:
        for _ in range(RESTARTS):
            place = (
                ipp_cluster.running(profile, cluster_file, trusted)
                if elsewhere
                else ipp_cluster.started(engines, libraries)
            )
            with place as there:
                try:
                    return _grade_on(there, left, book, versions, resources, secret, trusted, tick)
                except ControllerLost:
                    if elsewhere:
                        raise ipp_cluster.ClusterError(
                            f"the controller of {ipp_cluster.name(profile, cluster_file)} has lost a process, or has"
                            f" not answered for {ipp_cluster.SILENCE:.0f} seconds; start the cluster anew with"
                            f" `ipcluster start`: the same command goes on with the {len(left)} units that are left"
                        ) from None
                    say("The cluster's controller has ended; starting another. What was not finished is graded again.")
                except EnginesLost:
                    if elsewhere:
                        why = (
                            f"no engine of {ipp_cluster.name(profile, cluster_file)} answers any more: start"
                            " engines, and"
                        )
                    else:
                        why = f"the engines ended, and no new one has started in {ipp_cluster.STARTING} seconds:"
                    raise ipp_cluster.ClusterError(
                        f"{why} run the same command again; it goes on with the {len(left)} units that are left"
                    ) from None
    raise ipp_cluster.ClusterError(
        f"the cluster's controller ended {RESTARTS} times; {len(left)} units are left: run the same command again"
    )


def _grade_on(engines, left, book, versions, resources, secret, trusted, tick):
    open_pieces, verdicts, finished = {}, defaultdict(list), []
    kept = 0.0

    def pieces():
        for key, submission in list(left.items()):
            made = work.pieces(submission, key[-1], secret)
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
def _progress(units, folder, say):
    """In a `with`: a function to call after each unit. It shows how many units are graded, how fast, and the time
    that is left: as a bar in a terminal, else as about 20 lines in all. In `folder` it notes how many, for `serve`."""
    terminal, lines = sys.stderr.isatty(), max(1, units // 20)
    with open(os.devnull, "w") as nowhere:
        where = {"file": sys.stderr} if terminal else {"file": nowhere, "bar_format": LINE}
        # no smoothing, since units come in bursts
        with tqdm(total=units, unit="unit", desc="graded", smoothing=0, **where) as bar:

            def note():
                with suppress(OneSentence):  # a full disk stops the grading where results are stored
                    write(folder / PROGRESS, json.dumps({"done": bar.n, "units": units}))

            def tick(key, engines):
                bar.set_postfix_str(f"{engines} engines, {key[0]}: {key[-1]}"[:60], refresh=False)
                bar.update()
                if not terminal and (bar.n % lines == 0 or bar.n in (1, units)):
                    soon = bar.format_dict["elapsed"] < SETTLED and bar.n < units
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
