"""Collects what a class handed in: the student, the attempt and the files. Called by ``python -m grader grade`` and
``similarity``.

It knows the names in Moodle's and Canvas's downloads, those of `python -m handson submit`, and plain ones (a student's
name):

    Jane Doe_12345_assignsubmission_file_/...      Jane Doe_12345_assignsubmission_file_homework.zip         (Moodle)
    Participant_12345_assignsubmission_file/...    Group A_77_assignsubmission_file/...                      (anonymous,
        group work)
    doejane_LATE_12345_67890_homework-1.zip: name, late or not, number of the student, number of the file    (Canvas)
    LATE_anon_aB3xZ_67890_homework.zip: the same where Canvas grades anonymously, without the number of the student
    jane.20261120T165959Z.0123456789ab.zip: name, time in UTC, digest                                        (handson
        submit)

Students choose the end of such a name, so only its first mark says whose submission it is. A name that both platforms
could have given, and a number that several names have, are refused: an instructor has to say whose submission it is.

Sources: Moodle's mod/assign/classes/downloader.php, Canvas's lib/content_zipper.rb.
"""

import contextlib
import difflib
import hashlib
import re
import shutil
import unicodedata
import zipfile
from collections import defaultdict, namedtuple
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from grader.instructors import archives, downloads
from grader.notebook_cells import without_outputs
from handson.errors import OneSentence
from handson.files import COURSE
from handson.submit import LARGEST

ROOT = COURSE
MOODLE = re.compile(r"(?P<name>.+?)(_(?P<number>\d+))?_assignsubmission_file(_(?P<file>.*))?", re.DOTALL | re.ASCII)
CANVAS = re.compile(
    r"(?P<name>[^_]+)_((?P<late>LATE)_)?(?P<number>\d+)_(?P<order>\d+)_(?P<file>.+)", re.DOTALL | re.ASCII
)
ANONYMOUS = re.compile(
    r"((?P<late>LATE)_)?(?P<name>anon_[^_]+)(?P<number>)_(?P<order>\d+)_(?P<file>.+)", re.DOTALL | re.ASCII
)
DROPPED = re.compile(r"(?P<name>.+)\.(?P<time>\d{8}T\d{6}Z)\.[0-9a-f]{12}(\.zip)?", re.ASCII)
HIDDEN = re.compile(r"\.|__MACOSX$")
# Moodle's online texts are in folders of their own
ONLINE = re.compile(r"((?!_assignsubmission_).)+_assignsubmission_(?!file)", re.DOTALL)
PACKED = (*archives.SUFFIXES, *archives.UNREADABLE)
LOOSE = tuple(LARGEST)  # a student's work, outside of a folder or an archive
LARGE = 500_000  # bytes of a notebook whose outputs are left out
RENAME = "give each group in Moodle a name of its own, then download the submissions and the worksheet again"
SPAN = 3600  # seconds: what a zip was written in says nothing of when its parts were handed in


class CollectError(OneSentence, OSError):
    """A sentence on why there are no submissions."""


@dataclass(frozen=True)
class Submission:
    """One attempt of a student. The highest attempt counts."""

    student: str  # unique, and safe to show: "Jane Doe_12345", "doejane_12345" or "jane"
    name: str  # for people to read
    number: str  # the learning platform's number for the student; "" with plain names
    attempt: int  # counted from 1; the newest attempt has the highest number
    time: float  # when the archive or the files were last written, in seconds since 1970
    late: bool  # according to the platform
    # a folder with those expected files that were handed in, large notebooks without outputs; None if refused
    path: Path | None
    digest: str  # sha256 of what is there, in hex; "" if refused
    # sentences about files that were not read, or not asked for; what is missing is a verdict on its gaps
    problems: tuple
    refused: str | None  # a sentence on why the submission is refused, or None
    handed_in: str | None = None  # when, according to the platform, such as 2026-11-20T17:00:00+00:00; None if unknown


# order: among the attempts; file: its name before the platform's
Who = namedtuple("Who", "student name number late order handed_in file")
# a student whom the platform or the gradebook knows
Listed = namedtuple("Listed", "student name number group handed_in")
Attempt = namedtuple("Attempt", "entries who")  # entries: a folder or an archive, and loose files; or loose files alone


def collect(submissions, workplace, expected, say=lambda line: None, listed=(), zone=None, with_times=True):
    """Every attempt of every student in `submissions`, sorted by student and attempt, unpacked below `workplace`.

    submissions: a folder, or the one zip that a learning platform gives out; expected: the names of the files asked
    for, such as "notebooks/02_multi_gpu.ipynb"; listed: what is known of students (Listed); zone: the tzinfo of a zip's
    times, by default this machine's. with_times: whether it matters when something was handed in. The result includes
    attempts that can't be read, with the reason. `say` reports files that are no student's work, such as notes.txt, and
    they are left out. Raises CollectError.
    """
    submissions, workplace = Path(submissions), Path(workplace)
    with _opened(submissions) as entries:
        attempts, same_number = _by_student(submissions, entries, listed, say)
        times = _times(attempts, listed, zone, say if submissions.is_file() else None) if with_times else {}
        if with_times:
            _say_what_is_younger(attempts, say)
        limits = {name: LARGEST[Path(name).suffix] for name in expected}
        given_out = released()
        collected = []
        for student, of_student in sorted(attempts.items()):
            place = workplace / file_name(student)
            shutil.rmtree(place, ignore_errors=True)
            others = same_number[of_student[0].who.number] - {student} if of_student[0].who.number else set()
            read = [(*_read(student, attempt, others, limits, given_out), attempt) for attempt in of_student]
            read.sort(
                key=lambda one: (one[2].who.handed_in or "", one[2].who.order, one[0].time, one[2].entries[0].name)
            )
            for number, (submission, files, attempt) in enumerate(read, start=1):
                for name, data in files.items():
                    _write(place / str(number) / name, data)
                handed_in = attempt.who.handed_in or (times.get(student) if number == len(read) else None)
                collected.append(
                    replace(
                        submission, attempt=number, path=place / str(number) if files else None, handed_in=handed_in
                    )
                )
    return collected


def names(submissions, listed=()):
    """{student: the names of what a learning platform gave out of each, in the order of attempts}. listed: what is
    known of students (Listed). Raises CollectError."""
    with _opened(Path(submissions)) as entries:
        attempts, _ = _by_student(submissions, entries, listed, lambda line: None)
        ordered = {
            student: sorted(of_student, key=lambda one: one.who.order) for student, of_student in attempts.items()
        }
        return {student: [attempt.entries[0].name for attempt in of_student] for student, of_student in ordered.items()}


@contextlib.contextmanager
def _opened(submissions):
    if not submissions.is_dir() and not (submissions.is_file() and submissions.suffix.lower() == ".zip"):
        raise CollectError(
            f"{submissions} is no folder and no .zip: name the folder that holds a folder or an archive for each"
            " student, or Moodle's zip"
        )
    try:
        with downloads.opened(submissions, _is_named) as entries:
            yield entries
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        if isinstance(error, OneSentence):
            raise
        raise CollectError(
            f"{submissions} can't be read ({getattr(error, 'strerror', None) or 'it is damaged, or no zip'}): download"
            " it again, or unpack it"
        ) from None


def _is_named(entry):
    """Whether an entry is a submission by its name, or by what is in it."""
    by_name = any(kind.fullmatch(entry.name) for kind in (MOODLE, ANONYMOUS, CANVAS, DROPPED))
    return by_name or any(
        inside.name in ("exercises", "notebooks") or inside.name.lower().endswith(LOOSE) for inside in entry.inside()
    )


def _by_student(submissions, entries, listed, say):
    """({student: Attempts}, {number: students}) of the entries that are some student's work. Raises CollectError if
    there are none."""
    if room := next(
        (entry.name for entry in entries if entry.is_folder and entry.name in ("exercises", "notebooks")), None
    ):
        raise CollectError(f"{submissions} is one submission, for it has {room}/: name the folder that it is in")
    attempts, same_number, loose = defaultdict(list), defaultdict(set), {}
    found = [(entry, _who(entry)) for entry in entries if not HIDDEN.match(entry.name) and not _online(entry)]
    numbers = {who.number for _, who in found if who.number}
    known = [*(who for _, who in found if who.number), *(one for one in listed if one.number not in numbers)]
    known = {one.student: (one.name, one.number) for one in known}
    written = defaultdict(set)
    for entry, who in found:
        if not (who.number or _stray(entry)):
            written[alike(who.name)].add(who.name)
    for entry, who in found:
        if _stray(entry):
            say(f"{archives.shown(entry.name)}: left out, it is neither a folder nor an archive.")
            continue
        if not who.number:
            who = _with_number(who, known, written[alike(who.name)] - {who.name}, say)
        same_number[who.number].add(who.student)
        if entry.is_folder:
            attempts[who.student] += [Attempt(together, who) for together in _handed_in(entry)]
        elif who.file is None or entry.is_link or who.file.lower().endswith(PACKED):
            attempts[who.student].append(Attempt((entry,), who))
        else:  # Moodle and Canvas can give out the files of all students side by side
            loose.setdefault(who.student, []).append((entry, who))
    for student, files in loose.items():
        order, late = max(who.order for _, who in files), any(who.late for _, who in files)
        packed, who = attempts[student], files[0][1]._replace(order=order, late=late)
        beside = packed.pop().entries if len(packed) == 1 and not packed[0].entries[0].is_folder else ()
        packed.append(Attempt((*beside, *(entry for entry, _ in files)), who))
    if not attempts:
        raise CollectError(f"{submissions} is empty: it should hold a folder or an archive for each student")
    # raises if it can't tell which group is meant
    in_groups([attempt.who for (attempt, *_) in attempts.values()], {one.group for one in listed})
    of_name = defaultdict(list)
    for student in attempts:
        of_name[alike(student)].append(student)
    for students in (students for students in of_name.values() if len(students) > 1):
        say(
            f"{' and '.join(map(archives.shown, students))} are graded as different students: if they are one, give"
            " both the same name."
        )
    return attempts, same_number


def _with_number(who, known, otherwise, say):
    """A plain name as that of the student whom it means, if the platform or the gradebook has exactly one of this name.

    otherwise: what else is handed in under this name, in other capitals. It may be somebody else's, so a name that is
    not exactly the known one is nobody's then.
    """
    if who.name.startswith("anon_"):
        return who
    student, others = meant(who.name, {student: name for student, (name, _) in known.items()})
    if student and otherwise and who.name not in (student, known[student][0]):
        beside = " and ".join(map(archives.shown, sorted(otherwise)))
        say(
            f"{archives.shown(who.name)}: a student of its own, as {beside} is handed in, too; if this is {student},"
            " give both the same name."
        )
        return who
    if student and student != who.student:
        say(f"{archives.shown(who.name)}: taken for {student}.")
        return who._replace(student=student, name=known[student][0], number=known[student][1])
    if others:
        reason = (
            f"for it could be {' or '.join(others)}; rename it to one of them."
            if len(others) > 1
            else f"did you mean {others[0]}?"
        )
        say(f"{archives.shown(who.name)}: a student of its own{',' if len(others) > 1 else ';'} {reason}")
    return who


def meant(name, known):
    """(the student whom a name means, or None; otherwise the students who could be meant). known: {student: the name
    without the number}.

    A name without its number means its student if nobody else has that name.
    """
    if name in known:
        return name, ()
    same = sorted(student for student, plain in known.items() if alike(name) in (alike(plain), alike(student)))
    if len(same) == 1:
        return same[0], ()
    names = {plain: student for student, plain in known.items()} | {student: student for student in known}
    return None, tuple(same) or tuple(names[near] for near in difflib.get_close_matches(name, names, 1, 0.8))


def alike(name):
    """A name in the form in which names are compared: without capitals, and with one space between words."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().replace("_", " ").split())


def in_groups(submissions, groups):
    """{student: the one of `groups` in Moodle's worksheet} of those `submissions` (with a student and a name) that are
    a group's. Raises CollectError if that is not certain.

    Moodle writes the underscores of a group's name as spaces. A name that is written in another way means the only
    group that is alike.
    """
    written, similar = defaultdict(set), defaultdict(set)
    for group in filter(None, groups):
        similar[alike(group)].add(group)
        for name in (group, group.replace("_", " ")):
            written[_clean(name)].add(group)
    of_group = {}
    for one in submissions:
        meant = sorted(written.get(one.name) or similar.get(alike(one.name), ()))
        if len(meant) > 1:
            raise CollectError(
                f"{archives.shown(one.student)} could be of the group {' or '.join(map(repr, meant))}: {RENAME}"
            )
        if meant and (other := of_group.setdefault(meant[0], one.student)) != one.student:
            raise CollectError(
                f"{archives.shown(other)} and {archives.shown(one.student)} could both be of the group {meant[0]!r}:"
                f" {RENAME}"
            )
    return {student: group for group, student in of_group.items()}


def _times(attempts, listed, zone, say):
    """{student: when the last attempt was handed in, in UTC}, as the platform lists it, or else by the times in its
    zip.

    Since 4.1, Moodle's zips have the times at which Moodle wrote them: they never go back, and say nothing of students.
    """
    by_number, by_group, times = {}, defaultdict(list), {}
    for one in (one for one in listed if one.handed_in):
        by_number[one.number] = one.handed_in
        if one.group:
            by_group[one.group].append(one.handed_in)
    of_student = in_groups([attempt.who for (attempt, *_) in attempts.values()], {one.group for one in listed})
    for student, (attempt, *_) in attempts.items():
        if found := max(by_group.get(of_student.get(student), ()), default=None) or by_number.get(attempt.who.number):
            times[student] = found
    if (
        times
        or say is None
        or all(attempt.who.file is None for of_student in attempts.values() for attempt in of_student)
    ):
        return times
    entries = sorted(
        (entry for of_student in attempts.values() for attempt in of_student for entry in attempt.entries),
        key=lambda entry: entry.place,
    )
    written = [entry.time for entry in entries]
    if written == sorted(written) or max(written) - min(written) < SPAN:
        say(
            "The zip has no times of handing in, only those of its download: name Moodle's grading worksheet with"
            " --worksheet, if they count."
        )
        return {}
    first, last = (datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M") for time in (min(written), max(written)))
    say(f"Handed in: by the times in the zip, {first} to {last}, on clocks of {zone or 'this machine'}.")
    latest = {
        student: max(entry.moment(zone) for entry in of_student[-1].entries) for student, of_student in attempts.items()
    }
    return {student: time.astimezone(UTC).isoformat(timespec="seconds") for student, time in latest.items()}


def _say_what_is_younger(attempts, say):
    """Report files that were written long after the time that `handson submit` put into their names, which a student
    can change."""
    dropped = [
        (attempt.entries[0], attempt.who)
        for of_student in attempts.values()
        for attempt in of_student
        if attempt.who.handed_in
    ]
    younger = [
        archives.shown(entry.name)
        for entry, who in dropped
        if entry.time - datetime.fromisoformat(who.handed_in).timestamp() > SPAN
    ]
    if younger:
        more = f" and {len(younger) - 3} more" if len(younger) > 3 else ""
        say(
            f"Written over an hour after the time in the name: {', '.join(younger[:3])}{more}. Copies have the time of"
            " copying; else look at it."
        )


def _write(path, data):
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise CollectError(
            f"{path} can't be written ({error.strerror}): make room, then run the same command again"
        ) from None


def released():
    """The names of all files that students receive to work on."""
    paths = [path for room in ("exercises", "notebooks") for path in sorted((ROOT / room).rglob("*"))]
    return [str(path.relative_to(ROOT)) for path in paths if path.suffix in (".py", ".sh", ".ipynb")]


def newest(submissions):
    """The submissions that count: the last attempt of each student."""
    return list(
        {submission.student: submission for submission in sorted(submissions, key=lambda one: one.attempt)}.values()
    )


def file_name(student):
    """A name for a student's files: readable if possible, valid on any disk, and unique."""
    name = re.sub(r"[^\w .@+-]", "_", student)
    if name == student and len(name.encode()) <= 200 and not re.match(r"$|[. -]|.*([. ]|-[0-9a-f]{12})$", name):
        return name
    return f"{name.lstrip('. -')[:50] or '_'}-{hashlib.sha256(student.encode()).hexdigest()[:12]}"


def _stray(entry):
    """Whether an entry is a file that, by its name, is no student's work."""
    if entry.is_link or entry.is_folder or any(kind.fullmatch(entry.name) for kind in (MOODLE, ANONYMOUS, CANVAS)):
        return False
    return not entry.name.lower().endswith((*PACKED, *LOOSE))


def _handed_in(entry):
    """The entries of each attempt in a folder: itself, or the archives in it if it is a folder of files only (as in
    Moodle's downloads)."""
    if entry.is_link:
        return [(entry,)]
    try:
        inside = [one for one in entry.inside() if not HIDDEN.match(one.name)]
    except OSError:
        return [(entry,)]  # reading it will raise the same error, which is then reported
    if any(one.is_folder for one in inside):
        return [(entry,)]
    packed = [one for one in inside if one.name.lower().endswith(archives.SUFFIXES)]
    packed = packed or [one for one in inside if one.name.lower().endswith(PACKED)]
    beside = [one for one in inside if one.name.lower().endswith(LOOSE)] if len(packed) == 1 else []
    return [(one, *beside) for one in packed] or [(entry,)]


def _who(entry):
    """Whose submission an entry is, by its name: Who."""
    late, order, handed_in, file, number = False, 0, None, None, ""
    if _ambiguous(entry):
        name = entry.name
    elif named := MOODLE.fullmatch(entry.name):
        name, number, file = named["name"], named["number"] or "", named["file"] or ""
    elif named := ANONYMOUS.fullmatch(entry.name) or CANVAS.fullmatch(entry.name):
        name, number, late, order, file = (
            named["name"],
            named["number"],
            bool(named["late"]),
            int(named["order"]),
            named["file"],
        )
    elif (named := DROPPED.fullmatch(entry.name)) and (time := _time(named["time"])):
        name, handed_in = named["name"], time
    else:
        suffix = next((suffix for suffix in PACKED if entry.name.lower().endswith(suffix)), "")
        name = entry.name[: len(entry.name) - len(suffix)]
    name = _clean(name)
    return Who(f"{name}_{number}" if number else name, name, number, late, order, handed_in, file)


def _time(text):
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).isoformat()
    except ValueError:
        return None


def _online(entry):
    """Whether an entry is what Moodle gives out beside files, by the first mark in its name: students choose what
    follows."""
    return bool(ONLINE.match(entry.name)) and not (ANONYMOUS.fullmatch(entry.name) or CANVAS.fullmatch(entry.name))


def _ambiguous(entry):
    """Whether both Moodle and Canvas could have given this name, perhaps with different numbers of the student."""
    return bool(MOODLE.fullmatch(entry.name) and (ANONYMOUS.fullmatch(entry.name) or CANVAS.fullmatch(entry.name)))


def _read(student, attempt, others, limits, given_out):
    """(Submission, files by name) of one attempt. others: different students with the same number."""
    (entry, *_), who = attempt
    try:
        if others:
            names = ", ".join(archives.shown(other) for other in sorted(others)[:3])
            raise archives.Refused(
                f"has the number {who.number}, as {names} has: leave the one to which this number belongs"
            )
        if _ambiguous(entry):
            raise archives.Refused("could be a name from Moodle or from Canvas: rename it after the student")
        content = _content(attempt, limits, given_out)
        files, problems, time, refused = content.files, tuple(content.problems), content.time or entry.time, None
    except archives.Refused as error:
        files, problems, time, refused = {}, (), entry.time, f"{archives.shown(entry.name)} {error}."
    files = {
        file: without_outputs(data) if file.endswith(".ipynb") and len(data) > LARGE else data
        for file, data in files.items()
    }
    return (
        Submission(student, who.name, who.number, 0, time, who.late, None, digest_of(files), problems, refused),
        files,
    )


def _content(attempt, limits, given_out):
    (first, *beside), who = attempt
    if not (first.is_folder or first.is_link or who.file is None or first.name.lower().endswith(PACKED)):
        return archives.read(_loose(attempt.entries), limits, given_out)
    with first.source() as source:
        return archives.read(archives.Together((source, _loose(beside))) if beside else source, limits, given_out)


def _loose(entries):
    return archives.Loose(tuple((_who(one).file or one.name, one.start) for one in entries))


def unpacked(submission, workplace):
    """The folder below `workplace` in which `collect` has unpacked a Submission's files, or None if they are not there
    any more."""
    place = Path(workplace) / file_name(submission.student)
    for folder in sorted(place.iterdir()) if submission.digest and place.is_dir() else ():
        try:
            files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        except OSError:
            continue
        if digest_of(files) == submission.digest:
            return folder
    return None


def digest_of(files):
    """The sha256 of {name: data}, in hex; "" of no files."""
    digest = hashlib.sha256()
    for file, data in sorted(files.items()):
        digest.update(f"{file}\0{len(data)}\0".encode() + data)
    return digest.hexdigest() if files else ""


def _clean(name):
    """A name without invisible characters. Different names stay different."""
    name = unicodedata.normalize("NFC", name)
    return "".join(letter if letter.isprintable() and letter != "\\" else f"\\{ord(letter):x};" for letter in name)
