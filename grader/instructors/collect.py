"""Collects what a class handed in: the student, the attempt and the files. Called by ``python -m grader grade`` and ``similarity``.

It knows the names in Moodle's and Canvas's downloads, and plain ones (a student's name as the name of a folder or archive):

    Jane Doe_12345_assignsubmission_file_/...      Jane Doe_12345_assignsubmission_file_homework.zip         (Moodle)
    doejane_LATE_12345_67890_homework-1.zip: name, late or not, number of the student, number of the file    (Canvas)
    LATE_anon_aB3xZ_67890_homework.zip: the same where Canvas grades anonymously, without the number of the student

Students choose the end of such a name, so only its first mark says whose submission it is. A name that both platforms could have given,
and a number that several names have, are refused: an instructor has to say whose submission it is.

Sources: Moodle's mod/assign/classes/downloader.php, Canvas's lib/content_zipper.rb.
"""

import hashlib
import re
import shutil
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from grader.instructors import archives
from handson.errors import OneSentence
from handson.files import COURSE

ROOT = COURSE
MOODLE = re.compile(r"(?P<name>.+?)_(?P<number>\d+)_assignsubmission_file(_.*)?")
CANVAS = re.compile(r"(?P<name>[^_]+)_((?P<late>LATE)_)?(?P<number>\d+)_(?P<order>\d+)_.+")
ANONYMOUS = re.compile(r"((?P<late>LATE)_)?(?P<name>anon_[^_]+)(?P<number>)_(?P<order>\d+)_.+")
IGNORED = re.compile(r"^\.|^__MACOSX$|_assignsubmission_(?!file)")  # Moodle's online texts are in folders of their own
MISTAKEN = (".7z", ".rar", ".gz", ".bz2", ".xz", ".ipynb", ".py", ".sh")  # can't be read as archives, but are a student's work
NOTEBOOK, SCRIPT = 20_000_000, 1_000_000  # bytes, at most


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
    path: Path | None  # a folder with those expected files that were handed in, and nothing else; None if refused
    digest: str  # sha256 of those files, in hex; "" if refused
    problems: tuple  # sentences about files that are missing or were not asked for
    refused: str | None  # a sentence on why the submission is refused, or None


def collect(submissions, workplace, expected, say=lambda line: None):
    """Every attempt of every student in the folder `submissions`, sorted by student and attempt, unpacked below `workplace`.

    expected: the names of the files asked for, such as "notebooks/02_multi_gpu.ipynb". The list includes attempts that can't be read,
    with the reason. `say` reports files that are no student's work, such as notes.txt, and they are left out. Raises CollectError.
    """
    submissions, workplace = Path(submissions), Path(workplace)
    if not submissions.is_dir():
        raise CollectError(f"{submissions} is no folder: name the one that holds a folder or an archive for each student")
    if room := next((room for room in ("exercises", "notebooks") if (submissions / room).is_dir()), None):
        raise CollectError(f"{submissions} is one submission, for it has {room}/: name the folder that it is in")
    limits = {name: NOTEBOOK if name.endswith(".ipynb") else SCRIPT for name in expected}
    given_out = released()
    students = {}  # student -> [(path, name, number, late, order)]
    same_number = defaultdict(set)  # number -> students
    for entry in sorted(submissions.iterdir()):
        if _stray(entry):
            say(f"{archives.shown(entry.name)}: left out, it is neither a folder nor an archive.")
        elif not IGNORED.search(entry.name):
            student, *who = _who(entry)
            same_number[who[1]].add(student)
            students.setdefault(student, []).extend((path, *who) for path in _handed_in(entry))
    if not students:
        raise CollectError(f"{submissions} is empty: it should hold a folder or an archive for each student")
    collected = []
    for student, attempts in sorted(students.items()):
        place = workplace / file_name(student)
        shutil.rmtree(place, ignore_errors=True)
        others = same_number[attempts[0][2]] - {student} if attempts[0][2] else set()
        read = sorted((_read(student, *attempt, others, limits, given_out) for attempt in attempts), key=lambda attempt: attempt[0])
        for number, (_, submission, files) in enumerate(read, start=1):
            for name, data in files.items():
                _write(place / str(number) / name, data)
            collected.append(replace(submission, attempt=number, path=place / str(number) if files else None))
    return collected


def _write(path, data):
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise CollectError(f"{path} can't be written ({error.strerror}): make room, then run the same command again") from None


def released():
    """The names of all files that students receive to work on."""
    paths = [path for room in ("exercises", "notebooks") for path in sorted((ROOT / room).rglob("*"))]
    return [str(path.relative_to(ROOT)) for path in paths if path.suffix in (".py", ".sh", ".ipynb")]


def newest(submissions):
    """The submissions that count: the last attempt of each student."""
    return list({submission.student: submission for submission in sorted(submissions, key=lambda one: one.attempt)}.values())


def file_name(student):
    """A name for a student's files: readable if possible, valid on any disk, and unique."""
    name = re.sub(r"[^\w .@+-]", "_", student)
    if name == student and len(name.encode()) <= 200 and not re.match(r"$|[. -]|.*([. ]|-[0-9a-f]{12})$", name):
        return name
    return f"{name.lstrip('. -')[:50] or '_'}-{hashlib.sha256(student.encode()).hexdigest()[:12]}"


def _stray(entry):
    """Whether an entry is a file that, by its name, is no student's work. What matches IGNORED does not count as such."""
    name = entry.name.lower()
    if IGNORED.search(name) or entry.is_symlink() or any(kind.fullmatch(entry.name) for kind in (MOODLE, ANONYMOUS, CANVAS)):
        return False
    return entry.is_file() and not name.endswith((*archives.SUFFIXES, *MISTAKEN))


def _handed_in(entry):
    """The paths to read for an entry: itself, or the archives in it if it is a folder of files only (as in Moodle's downloads)."""
    if entry.is_symlink() or not entry.is_dir():
        return [entry]
    try:
        inside = [path for path in sorted(entry.iterdir()) if not IGNORED.search(path.name)]
    except OSError:
        return [entry]  # reading it will raise the same error, which is then reported
    if any(path.is_dir() for path in inside):
        return [entry]
    return [path for path in inside if path.name.lower().endswith(archives.SUFFIXES)] or [entry]


def _who(entry):
    """(student, name, number, late, the platform's order among the attempts), read from the name of an entry."""
    if _ambiguous(entry):
        name, number, late, order = entry.name, "", False, 0
    elif named := MOODLE.fullmatch(entry.name):
        name, number, late, order = named["name"], named["number"], False, 0
    elif named := ANONYMOUS.fullmatch(entry.name) or CANVAS.fullmatch(entry.name):
        name, number, late, order = named["name"], named["number"], bool(named["late"]), int(named["order"])
    else:
        suffix = next((suffix for suffix in archives.SUFFIXES if entry.name.lower().endswith(suffix)), "")
        name, number, late, order = entry.name[: len(entry.name) - len(suffix)], "", False, 0
    name = _clean(name)
    return f"{name}_{number}" if number else name, name, number, late, order


def _ambiguous(entry):
    """Whether both Moodle and Canvas could have given this name, perhaps with different numbers of the student."""
    return bool(MOODLE.fullmatch(entry.name) and (ANONYMOUS.fullmatch(entry.name) or CANVAS.fullmatch(entry.name)))


def _read(student, path, name, number, late, order, others, limits, given_out):
    """(order among the attempts, Submission, files by name) of one archive or folder. others: different students with the same number."""
    try:
        if others:
            names = ", ".join(archives.shown(other) for other in sorted(others)[:3])
            raise archives.Refused(f"has the number {number}, as {names} has: leave the one to which this number belongs")
        if _ambiguous(path):
            raise archives.Refused("could be a name from Moodle or from Canvas: rename it after the student")
        content = archives.read(path, limits, given_out)
        files, problems, time, refused = content.files, tuple(content.problems), content.time, None
    except archives.Refused as error:
        files, problems, time, refused = {}, (), path.lstat().st_mtime, f"{archives.shown(path.name)} {error}."
    digest = hashlib.sha256()
    for file, data in sorted(files.items()):
        digest.update(f"{file}\0{len(data)}\0".encode() + data)
    submission = Submission(student, name, number, 0, time, late, None, digest.hexdigest() if files else "", problems, refused)
    return (order, time, path.name), submission, files


def _clean(name):
    """A name without invisible characters. Different names stay different."""
    name = unicodedata.normalize("NFC", name)
    return "".join(letter if letter.isprintable() and letter != "\\" else f"\\{ord(letter):x};" for letter in name)
