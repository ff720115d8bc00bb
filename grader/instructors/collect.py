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
from collections import Counter, defaultdict, namedtuple
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
    r"(?P<name>((?!_assignsubmission_).)+?)_((?P<late>LATE)_)?(?P<number>\d+)_(?P<order>[1-9]\d*)_(?P<file>.+)",
    re.DOTALL | re.ASCII,
)
# each position in such a name at which the student's number could be, because a name may end with a number, and a file
# name may start with one
READING = re.compile(r"(?!^)(?=_(?:LATE_)?(?P<number>\d+)_(?P<order>[1-9]\d*)_.)", re.DOTALL | re.ASCII)
ANONYMOUS = re.compile(
    r"((?P<late>LATE)_)?(?P<name>anon_[^_]+)(?P<number>)_(?P<order>\d+)_(?P<file>.+)", re.DOTALL | re.ASCII
)
AGAIN = re.compile(r"-\d+(?=(\.tar)?\.\w+$)", re.ASCII)  # Canvas's mark of a file that is handed in again
DROPPED = re.compile(r"(?P<name>.+)\.(?P<time>\d{8}T\d{6}Z)\.[0-9a-f]{12}(\.zip)?", re.ASCII)
HIDDEN = re.compile(r"\.|__MACOSX$")
# Moodle's online texts are in separate folders
ONLINE = re.compile(r"((?!_assignsubmission_).)+_assignsubmission_(?!file)", re.DOTALL)
PACKED = (*archives.SUFFIXES, *archives.UNREADABLE)
LOOSE = tuple(LARGEST)  # a student's files, without a folder or an archive
LARGE = 500_000  # bytes; outputs of larger notebooks are removed
RENAME = "give each group in Moodle a unique name, then download the submissions and the worksheet again"
NAMELESS = "participant"  # Moodle's name of all students if it grades anonymously
MOST_COMPARED = 5000  # names with which a similar name is compared
SPAN = 3600  # seconds within which a platform writes a zip; such times are not submission times


class CollectError(OneSentence, OSError):
    """The reason why there are no submissions."""


@dataclass(frozen=True)
class Submission:
    """One attempt of a student. The highest attempt counts."""

    student: str  # unique, and safe to print: "Jane Doe_12345", "doejane_12345" or "jane"
    name: str  # the name that people read
    number: str  # the learning platform's number for the student; "" with plain names
    attempt: int  # counted from 1; the newest attempt has the highest number
    time: float  # when the archive or the files were last written, in seconds since 1970
    late: bool  # according to the platform
    # a folder with the expected files that were handed in, large notebooks without outputs; None if refused
    path: Path | None
    digest: str  # sha256 of the files, in hex; "" if refused
    # sentences on files that were not read, or not requested; missing files become verdicts on their gaps
    problems: tuple
    refused: str | None  # a sentence on why the submission is refused, or None
    handed_in: str | None = None  # when, according to the platform, such as 2026-11-20T17:00:00+00:00; None if unknown


# order: among the attempts; file: its name without the platform's prefix
Who = namedtuple("Who", "student name number late order handed_in file")
# a student known to the platform or the gradebook; others: other students of the gradebook who may be meant
Listed = namedtuple("Listed", "student name number group handed_in others", defaults=("", None, ()))
# entries: a folder, or archives and loose files; doubt: why the student is uncertain, or None
Attempt = namedtuple("Attempt", "entries who doubt", defaults=(None,))


def collect(submissions, workplace, expected, say=lambda line: None, listed=(), zone=None, with_times=True):
    """Return every attempt of every student in `submissions`, sorted by student and attempt, unpacked below
    `workplace`.

    submissions: a folder, or the zip of a learning platform; expected: the names of the requested files, such as
    "notebooks/02_multi_gpu.ipynb"; listed: known students (Listed); zone: the tzinfo of a zip's times, by default this
    machine's; with_times: whether submission times matter. The result includes attempts that cannot be read, with the
    reason. `say` reports files that are not a student's work, such as notes.txt, and they are left out. Raises
    CollectError.
    """
    submissions, workplace = Path(submissions), Path(workplace)
    with _opened(submissions) as entries:
        attempts = _by_student(submissions, entries, listed, say)
        times = _times(attempts, listed, zone, say if submissions.is_file() else None) if with_times else {}
        if with_times:
            _say_what_is_younger(attempts, say)
        limits = {name: LARGEST[Path(name).suffix] for name in expected}
        given_out = released()
        collected = []
        for student, of_student in sorted(attempts.items()):
            read = [(*_read(student, attempt, limits, given_out), attempt) for attempt in of_student]
            read.sort(
                key=lambda one: (one[2].who.handed_in or "", one[2].who.order, one[0].time, one[2].entries[0].name)
            )
            for number, (submission, files, attempt) in enumerate(read, start=1):
                handed_in = attempt.who.handed_in or (times.get(student) if number == len(read) else None)
                place = _kept(workplace / file_name(student), submission.digest, files) if files else None
                collected.append(replace(submission, attempt=number, path=place, handed_in=handed_in))
    return collected


def _kept(place, digest, files):
    """Write the files of one attempt to a new folder in a student's `place`. Return the folder."""
    folder = place / digest[:12]
    shutil.rmtree(folder, ignore_errors=True)  # remove what an interrupted run has left
    for name, data in files.items():
        _write(folder / name, data)
    return folder


def names(submissions, listed=()):
    """Return {student: the platform's names of their attempts, in order}. listed: known students (Listed). Raises
    CollectError."""
    with _opened(Path(submissions)) as entries:
        attempts = _by_student(submissions, entries, listed, lambda line: None)
        ordered = {
            student: sorted(of_student, key=lambda one: one.who.order) for student, of_student in attempts.items()
        }
        return {student: [attempt.entries[0].name for attempt in of_student] for student, of_student in ordered.items()}


def numbered_by_moodle(submissions):
    """Return the (name, number) pairs of students and groups in Moodle's names. Raises CollectError."""
    with _opened(Path(submissions)) as entries:
        found = [_who(entry) for entry in entries if MOODLE.fullmatch(entry.name) and not _ambiguous(entry)]
        return {(who.name, who.number) for who in found if who.number}


@contextlib.contextmanager
def _opened(submissions):
    if not submissions.is_dir() and not (submissions.is_file() and submissions.suffix.lower() == ".zip"):
        raise CollectError(
            f"{submissions} is neither a folder nor a .zip: name the folder that holds a folder or an archive for each"
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
    """Return whether an entry is a submission, from its name or its content."""
    by_name = any(kind.fullmatch(entry.name) for kind in (MOODLE, ANONYMOUS, CANVAS, DROPPED))
    return by_name or any(
        inside.name in ("exercises", "notebooks") or inside.name.lower().endswith(LOOSE) for inside in entry.inside()
    )


def _by_student(submissions, entries, listed, say):
    """Return {student: Attempts} of the entries that are a student's work. Raises CollectError if there are none."""
    entries = _without_rooms(submissions, entries, say)
    attempts, numbered, together, loose = defaultdict(list), defaultdict(set), defaultdict(list), {}
    found = [(entry, _who(entry)) for entry in entries if not HIDDEN.match(entry.name) and not _online(entry)]
    numbers = {who.number for _, who in found if who.number}
    known = [*(who for _, who in found if who.number), *(one for one in listed if one.number not in numbers)]
    known = {one.student: (one.name, one.number) for one in (*known, *reversed(listed))}
    plain = {student: name for student, (name, _) in known.items()}
    forms, written, register = (plain, forms_of(plain)), defaultdict(set), _register(listed)
    for entry, who in found:
        if not (who.number or _stray(entry)):
            written[alike(who.name)].add(who.name)
    for entry, who in found:
        if _stray(entry):
            say(f"{archives.shown(entry.name)}: left out, it is neither a folder nor an archive.")
            continue
        doubt = _doubt(entry, who, register, numbers)
        if not who.number and not doubt:
            who = _with_number(who, known, forms, written[alike(who.name)] - {who.name}, say)
        if who.number and not doubt:
            who = _as_known(who, register)
        numbered[who.number].add((who.student, who.name))
        if entry.is_folder:
            attempts[who.student].append(Attempt(_handed_in(entry), who, doubt))
        elif who.file is None or entry.is_link:
            attempts[who.student].append(Attempt((entry,), who, doubt))
        elif who.file.lower().endswith(PACKED):  # Moodle and Canvas can put the files of all students into one folder
            together[who.student].append((entry, who, doubt))
        else:
            loose.setdefault(who.student, []).append((entry, who, doubt))
    for student, files in together.items():
        attempts[student] += map(_one, _in_attempts(files))
    for student, files in loose.items():
        packed = attempts[student]
        beside = packed.pop() if len(packed) == 1 and not packed[0].entries[0].is_folder else None
        packed.append(
            _one([*((entry, beside.who, beside.doubt) for entry in (beside.entries if beside else ())), *files])
        )
    if not attempts:
        raise CollectError(f"{submissions} is empty: it should hold a folder or an archive for each student")
    typed = {entry.name.partition("_assignsubmission_")[0] for entry in entries if _online(entry)}
    for name in sorted(typed - {f"{who.name}_{who.number}" for _, who in found} - {who.name for _, who in found}):
        say(f"{archives.shown(name)}: only a text that was typed in Moodle, which is not graded.")
    of_groups = _in_groups([attempt.who for (attempt, *_) in attempts.values()], listed)
    several = {student: _which_group(groups) for student, groups in of_groups.items() if len(groups) > 1}
    of_name = defaultdict(list)
    for student in attempts:
        of_name[alike(student)].append(student)
    for students in (students for students in of_name.values() if len(students) > 1):
        say(
            f"{' and '.join(map(archives.shown, students))} are graded as different students: if they are one, give"
            " both the same name."
        )
    return {
        student: [
            one._replace(doubt=one.doubt or _same_number(one.who, numbered) or several.get(student))
            for one in of_student
        ]
        for student, of_student in attempts.items()
    }


def _without_rooms(submissions, entries, say):
    """Return the entries without exercises/ and notebooks/, which are not students' names. Raises CollectError if there
    are no other entries, because the folder is then a single submission."""
    rooms = [entry for entry in entries if entry.is_folder and entry.name in archives.ROOMS]
    others = [entry for entry in entries if entry not in rooms]
    if rooms and not any(_is_work(entry) for entry in others):
        raise CollectError(
            f"{submissions} is a single submission (it contains {rooms[0].name}/): give the folder that contains it"
        )
    for room in rooms:
        say(f"{room.name}: left out, its name is not a student's.")
    return others


def _is_work(entry):
    """Return whether an entry at the top is a student's work, from its name or its folders."""
    try:
        return not entry.is_link and (
            any(kind.fullmatch(entry.name) for kind in (MOODLE, ANONYMOUS, CANVAS, DROPPED))
            or not entry.is_folder
            and entry.name.lower().endswith(PACKED)
            or entry.is_folder
            and any(one.is_folder and one.name in archives.ROOMS for one in entry.inside())
        )
    except OSError:
        return False


def _in_attempts(files):
    """Return the archives of one student, which a platform put into one folder, by attempts: another archive of the
    same name is another attempt. files: (entry, Who, doubt) triples."""
    found, before = defaultdict(list), defaultdict(int)
    for entry, who, doubt in sorted(files, key=lambda one: one[1].order):
        name = AGAIN.sub("", who.file)
        found[before[name]].append((entry, who, doubt))
        before[name] += 0 if MOODLE.fullmatch(entry.name) else 1  # Moodle includes only the last attempt
    return list(found.values())


def _one(files):
    """Return the Attempt of files that were handed in together, archives first. files: (entry, Who, doubt) triples."""
    entries = sorted((entry for entry, _, _ in files), key=lambda one: not one.name.lower().endswith(PACKED))
    order, late = max(who.order for _, who, _ in files), any(who.late for _, who, _ in files)
    return Attempt(
        tuple(entries),
        files[0][1]._replace(order=order, late=late),
        next(filter(None, (one[2] for one in files)), None),
    )


def _doubt(entry, who, register, numbers):
    """Return why the student of an entry is uncertain, as a sentence after its name, or None. numbers: those in the
    names of all entries."""
    if _ambiguous(entry):
        return "could be a name from Moodle or from Canvas: rename it after the student"
    if others := _other_numbers(entry):
        return f"could be of the student {who.number} or {others[-1]}: rename it after the student"
    name = alike(who.name)
    same, of_name = register.numbers.get(who.number, ()), register.names.get(name, ())
    if not who.number:
        if of_name and name in register.groups:
            return f"could be of {of_name[0].student} or of the group of this name: write the number after the name"
        return None
    if _is_group(who, register):
        return None
    if same and name not in {alike(one.name) for one in same}:
        return f"has the number of {archives.shown(same[0].student)}, and another name: rename it after its student"
    if others := next((one.others for one in same if one.others), ()):
        return (
            f"could be of {' or '.join(map(archives.shown, others))}: give worksheets with the e-mail address of each"
        )
    elsewhere = [one.number for one in of_name if one.number] if MOODLE.fullmatch(entry.name) and not same else ()
    if elsewhere and name != NAMELESS and not numbers.intersection(elsewhere):
        return (
            f"has the name of {archives.shown(of_name[0].student)} and another number, as in another assignment: name"
            " its grading worksheet with --worksheet"
        )
    return None


# {number: Listed students}, {name, as from `alike`: Listed students}, names of groups, as from `alike`
Register = namedtuple("Register", "numbers names groups")


def _register(listed):
    numbers, names = defaultdict(list), defaultdict(list)
    for one in listed:
        names[alike(one.name)].append(one)
        if one.number:
            numbers[one.number].append(one)
    return Register(numbers, names, {alike(one.group) for one in listed if one.group})


def _is_group(who, register):
    """Return whether the name is a group's, and not that of the listed student with this number."""
    own = any(alike(one.name) == alike(who.name) for one in register.numbers.get(who.number, ()))
    return alike(who.name) in register.groups and not own


def _as_known(who, register):
    """Return Who with the student's name in the gradebook: the number may belong to another assignment in Moodle."""
    same = () if _is_group(who, register) else register.numbers.get(who.number, ())
    return who._replace(student=same[0].student) if same else who


def _which_group(groups):
    which = " or ".join(dict.fromkeys(map(repr, groups)))
    return f"could be of the group {which}, as another one could: {RENAME}"


def _same_number(who, numbered):
    """Return why a number does not identify a student, if several names have it; otherwise None."""
    others = sorted(name for name in numbered[who.number] if name[0] != who.student) if who.number else ()
    if others:
        names = ", ".join(archives.shown(student) for student, _ in others[:3])
        return f"has the number {who.number}, as {names} has: leave the one to which this number belongs"
    return None


def _with_number(who, known, forms, otherwise, say):
    """Return the student for a plain name, if the platform or the gradebook has exactly one of this name.

    otherwise: other submissions under this name in different capitals. They may belong to another student, so a name
    that does not match exactly is then refused.
    """
    if who.name.startswith("anon_"):
        return who
    student, others = meant(who.name, *forms)
    if student and otherwise and who.name not in (student, known[student][0]):
        beside = " and ".join(map(archives.shown, sorted(otherwise)))
        say(
            f"{archives.shown(who.name)}: a student of its own, as {beside} is handed in, too; if this is {student},"
            " give both the same name."
        )
        return who
    if student:
        if student not in (who.student, who.name):
            say(f"{archives.shown(who.name)}: taken for {student}.")
        return who._replace(student=student, name=known[student][0], number=known[student][1])
    if others:
        reason = (
            f"because it could belong to {' or '.join(others)}: rename it accordingly."
            if len(others) > 1
            else f"did you mean {others[0]}?"
        )
        say(f"{archives.shown(who.name)}: a student of its own{',' if len(others) > 1 else ';'} {reason}")
    return who


def meant(name, known, forms=None):
    """Return (the student with a name, or None; otherwise the students who may be meant). known: {student: the name
    without the number}; forms: the result of `forms_of`, to look up many names.

    A name without a number means its student if no other student has that name.
    """
    if name in known:
        return name, ()
    same = sorted((forms_of(known) if forms is None else forms).get(alike(name), ()))
    if len(same) == 1:
        return same[0], ()
    names = {plain: student for student, plain in known.items()} | {student: student for student in known}
    near = difflib.get_close_matches(name, names, 1, 0.8) if len(names) < MOST_COMPARED else ()
    return None, tuple(same) or tuple(names[one] for one in near)


def forms_of(known):
    """Return {a form of a name, as from `alike`: the students who may be meant}."""
    forms = defaultdict(set)
    for student, plain in known.items():
        for form in (plain, student, file_name(student)):
            forms[alike(form)].add(student)
    return forms


def alike(name):
    """Return a name in the form in which names are compared: in small letters, with one space between words."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().replace("_", " ").split())


def in_groups(submissions, listed):
    """Return {student: the group in Moodle's worksheet} of those `submissions` (with a student, a name and a number)
    that certainly belong to a group. listed: the students in the worksheet (Listed)."""
    return {student: groups[0] for student, groups in _in_groups(submissions, listed).items() if len(groups) == 1}


def _in_groups(submissions, listed):
    """Return {student: the groups whose submission it may be}. If several submissions may belong to one group, each
    gets all candidates.

    Moodle replaces underscores in a group's name by spaces. A name in another form means the only group that resembles
    it. If a group has a student's name, a submission with the student's number belongs to the student.
    """
    written, similar = defaultdict(set), defaultdict(set)
    own = {(alike(one.name), one.number) for one in listed}
    for group in {one.group for one in listed if one.group}:
        similar[alike(group)].add(group)
        for name in (group, group.replace("_", " ")):
            written[_clean(name)].add(group)
    found = {
        one.student: sorted(written.get(one.name) or similar.get(alike(one.name), ()))
        for one in submissions
        if (alike(one.name), one.number) not in own
    }
    taken = Counter(groups[0] for groups in found.values() if len(groups) == 1)
    return {student: groups * max(1, taken[groups[0]]) for student, groups in found.items() if groups}


def _times(attempts, listed, zone, say):
    """Return {student: when the last attempt was handed in, in UTC}, from the platform's list, or else from the times
    in its zip.

    Since 4.1, the times in Moodle's zips are those at which Moodle wrote the entries, so they increase, and do not
    depend on students.
    """
    by_number, by_group, times = {}, defaultdict(list), {}
    for one in (one for one in listed if one.handed_in):
        by_number[one.number] = one.handed_in
        if one.group:
            by_group[one.group].append(one.handed_in)
    of_student = in_groups([attempt.who for (attempt, *_) in attempts.values()], listed)
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
        advice = (  # the order comes from the numbers in Canvas's names; Moodle's names have none
            "Canvas gives no others, so every attempt counts as in time"
            if all(attempt.who.order for of_student in attempts.values() for attempt in of_student)
            else "name Moodle's grading worksheet with --worksheet, if they count"
        )
        say(f"The zip has no submission times, only that of its download: {advice}.")
        return {}
    first, last = (datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M") for time in (min(written), max(written)))
    say(f"Submission times: from the zip, {first} to {last}, on clocks of {zone or 'this machine'}.")
    latest = {
        student: max(entry.moment(zone) for entry in of_student[-1].entries) for student, of_student in attempts.items()
    }
    return {student: time.astimezone(UTC).isoformat(timespec="seconds") for student, time in latest.items()}


def _say_what_is_younger(attempts, say):
    """Report files that were written long after the time that `handson submit` put into the archive's name, which a
    student can change."""
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
    """Return the names of all files that students receive to work on."""
    paths = [path for room in ("exercises", "notebooks") for path in sorted((ROOT / room).rglob("*"))]
    return [str(path.relative_to(ROOT)) for path in paths if path.suffix in (".py", ".sh", ".ipynb")]


def newest(submissions):
    """Return the submissions that count: the last attempt of each student."""
    return list(
        {submission.student: submission for submission in sorted(submissions, key=lambda one: one.attempt)}.values()
    )


def file_name(student):
    """Return a name for a student's files that is readable if possible, valid on any disk, and unique."""
    name = re.sub(r"[^\w .@+-]", "_", student)
    if name == student and len(name.encode()) <= 200 and not re.match(r"$|[. -]|.*([. ]|-[0-9a-f]{12})$", name):
        return name
    return f"{name.lstrip('. -')[:50] or '_'}-{hashlib.sha256(student.encode()).hexdigest()[:12]}"


def _stray(entry):
    """Return whether an entry is a file that, by its name, is not a student's work."""
    if entry.is_link or entry.is_folder or any(kind.fullmatch(entry.name) for kind in (MOODLE, ANONYMOUS, CANVAS)):
        return False
    return not entry.name.lower().endswith((*PACKED, *LOOSE))


def _handed_in(entry):
    """Return the entries of an attempt: a folder itself, or the archives and loose files in it if it contains archives
    (as in Moodle's downloads)."""
    try:
        inside = [one for one in entry.inside() if not HIDDEN.match(one.name)]
    except OSError:
        return (entry,)  # reading it later raises the same error, which is then reported
    packed = [one for one in inside if one.name.lower().endswith(PACKED)]
    if not packed or any(one.is_folder for one in inside):
        return (entry,)
    return (*packed, *(one for one in inside if one.name.lower().endswith(LOOSE)))


def _who(entry):
    """Return Who for an entry, from its name."""
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
    """Return whether an entry is an online text of Moodle, from the first mark in its name, because students choose the
    rest."""
    return bool(ONLINE.match(entry.name)) and not (ANONYMOUS.fullmatch(entry.name) or CANVAS.fullmatch(entry.name))


def _other_numbers(entry):
    """Return the numbers in a name from Canvas, besides the first one, that may be the student's.

    Canvas itself takes the first number between two underscores as the student's, and leaves a number in a name only at
    its end (`sanitize_user_name`). A file's number is much higher than a student's, so another reading is possible if
    this holds for it, or if it does not hold for the first reading. Names are in small letters, so the number after
    LATE is the student's.
    """
    named = CANVAS.fullmatch(entry.name)
    if not named or named["late"] or ANONYMOUS.fullmatch(entry.name):
        return []
    (_, likely), *others = [(one["number"], _is_less(*one.groups())) for one in READING.finditer(entry.name)]
    return [number for number, as_likely in others if as_likely or not likely]


def _is_less(number, other):
    """Return whether one decimal number is less than another; they may be too long for int."""
    number, other = number.lstrip("0"), other.lstrip("0")
    return (len(number), number) < (len(other), other)


def _ambiguous(entry):
    """Return whether both Moodle and Canvas could have created this name, perhaps with different student numbers."""
    return bool(MOODLE.fullmatch(entry.name) and (ANONYMOUS.fullmatch(entry.name) or CANVAS.fullmatch(entry.name)))


def _read(student, attempt, limits, given_out):
    """Return (Submission, files by name) of one attempt."""
    (entry, *_), who, doubt = attempt
    try:
        if doubt:
            raise archives.Refused(doubt)
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
    entries = attempt.entries
    alone = attempt.who.file is None or entries[0].is_folder
    packed = [one for one in entries if alone and one is entries[0] or one.name.lower().endswith(PACKED)]
    if len(packed) > archives.MOST_ARCHIVES:
        raise archives.Refused(f"is one of {len(packed)} archives: pack the files into one")
    loose = [one for one in entries if one not in packed]
    contents = []
    for entry in packed:
        with entry.source() as source:
            contents.append((_plain(entry), _tried(source, limits, given_out)))
    if loose:
        contents.append((_plain(loose[0]), _tried(_loose(loose), limits, given_out)))
    return archives.merged(contents)


def _tried(source, limits, given_out):
    try:
        return archives.read(source, limits, given_out)
    except archives.Refused as error:
        return error


def _loose(entries):
    return archives.Loose(tuple((_plain(one), one.written, one.start) for one in entries))


def _plain(entry):
    return _who(entry).file or entry.name


def unpacked(submission, workplace):
    """Return the folder below `workplace` in which `collect` has unpacked a Submission's files, or None if they are
    missing."""
    place = Path(workplace) / file_name(submission.student)
    for folder in sorted(place.iterdir()) if submission.digest and place.is_dir() else ():
        try:
            files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        except OSError:
            continue
        if digest_of(files) == submission.digest:
            return folder
    return None


def folded(submission, workplace):
    """Like `unpacked`, but only from the folder's name, which is fast enough to show a page."""
    folder = Path(workplace) / file_name(submission.student) / submission.digest[:12]
    return folder if submission.digest and folder.is_dir() else None


def digest_of(files):
    """Return the sha256 of {name: data}, in hex, or "" for no files."""
    digest = hashlib.sha256()
    for file, data in sorted(files.items()):
        digest.update(f"{file}\0{len(data)}\0".encode() + data)
    return digest.hexdigest() if files else ""


def _clean(name):
    """Return a name without invisible characters. Different names stay different."""
    name = unicodedata.normalize("NFC", name)
    return "".join(letter if letter.isprintable() and letter != "\\" else f"\\{ord(letter):x};" for letter in name)
