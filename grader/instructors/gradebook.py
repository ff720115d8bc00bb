"""The gradebook: what was handed in, the verdicts on it, and what people changed by hand. No row in it is ever changed
or deleted.

`gradebook.sqlite` is an SQLite database, user_version 2; one of version 1 is upgraded when it is opened. Times are in
seconds since 1970. The newest row (highest id) counts. Three views show the rows that count now; all other rows are
history.

    submissions   student, name, number (the platform's, or ""), attempt, time (of the files), late, digest (sha256 of
        the files; "" if
                  refused), problems (JSON list of sentences), refused (a sentence, or NULL), recorded, handed_in
                      (according to the
                  platform: a time in ISO 8601, in UTC; or NULL)
                  -> current_submissions: one for each student
    results       student, digest, unit, version (of the checks), resources ("sandbox" or "trusted"), ungraded (1 if a
        verdict is a
                  grader fault), verdicts (JSON list of objects with the fields of grader.verdict.Verdict), stored
                  -> current_results: one for each current submission and unit
    adjustments   student, or a group of course.toml, unit ("" for the whole grade, "bonus" for bonus points), gap (""
        for the whole unit),
                  points (instead of what the checks gave; NULL takes an adjustment back), reason, author, time, digest
                      (of the files that
                  it was made for; NULL in rows of version 1, which were made for those that counted then)
                  -> current_adjustments: one for each student, unit and gap
    comments      student, unit ("" for the whole submission), gap ("" for the whole unit), text ("" takes a comment
        back), author, time,
                  digest (of the files that counted then)

Results belong to the files that were handed in (student and digest), so an older attempt that counts again needs no new
grading. Adjustments belong to the files that they were made for. Points are those of the checks:
grader.instructors.rules.

The database uses SQLite's rollback mode, not WAL: WAL keeps its index in memory that the processes of one machine
share, so it does not work on network file systems, where clusters have their home directories. Rollback mode allows one
writer at a time, which is enough. A POSIX record lock (fcntl) keeps a second grader out: it works over NFS, children
don't inherit it, and the system releases it when the process ends, however it ends.
"""

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import socket
import sqlite3
import struct
import sys
import time
from collections import defaultdict
from pathlib import Path

from grader.course import UNITS, most_points
from grader.instructors.collect import Submission
from grader.verdict import GRADER_FAULT, STATUSES, UNTOUCHED, Verdict, most
from handson.errors import OneSentence

NAME = "gradebook.sqlite"
LOCK = "gradebook.lock"
FLOCK = "hhqqi"  # struct flock of Linux on 64 bits: type, whence, start, length, process
SCHEMA_VERSION = 2
BONUS = "bonus"  # instead of a unit, in an adjustment that gives bonus points
COMMENTS = """CREATE TABLE comments (id INTEGER PRIMARY KEY, student TEXT NOT NULL, unit TEXT NOT NULL, gap TEXT NOT NULL, text TEXT NOT NULL,
    author TEXT NOT NULL, time REAL NOT NULL, digest TEXT NOT NULL)"""
SCHEMA = """
CREATE TABLE submissions (id INTEGER PRIMARY KEY, student TEXT NOT NULL, name TEXT NOT NULL, number TEXT NOT NULL, attempt INTEGER NOT NULL,
    time REAL NOT NULL, late INTEGER NOT NULL, digest TEXT NOT NULL, problems TEXT NOT NULL, refused TEXT, recorded REAL NOT NULL,
    handed_in TEXT);
CREATE TABLE results (id INTEGER PRIMARY KEY, student TEXT NOT NULL, digest TEXT NOT NULL, unit TEXT NOT NULL, version TEXT NOT NULL,
    resources TEXT NOT NULL, ungraded INTEGER NOT NULL, verdicts TEXT NOT NULL, stored REAL NOT NULL);
CREATE TABLE adjustments (id INTEGER PRIMARY KEY, student TEXT NOT NULL, unit TEXT NOT NULL, gap TEXT NOT NULL, points REAL,
    reason TEXT NOT NULL, author TEXT NOT NULL, time REAL NOT NULL, digest TEXT);
CREATE INDEX submissions_of_student ON submissions (student);
CREATE INDEX results_of_submission ON results (student, digest, unit);
CREATE VIEW current_submissions AS SELECT * FROM submissions WHERE id IN (SELECT max(id) FROM submissions GROUP BY student);
CREATE VIEW current_results AS SELECT results.* FROM results JOIN current_submissions USING (student, digest)
    WHERE results.id IN (SELECT max(id) FROM results GROUP BY student, digest, unit);
CREATE VIEW current_adjustments AS SELECT * FROM adjustments WHERE id IN (SELECT max(id) FROM adjustments GROUP BY student, unit, gap);
"""


def _never(table):
    return [
        f"CREATE TRIGGER {table}_{verb}_never BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, 'history is"
        " kept'); END"
        for verb in ("UPDATE", "DELETE")
    ]


SCHEMA += ";".join(
    [
        COMMENTS,
        *(trigger for table in ("submissions", "results", "adjustments", "comments") for trigger in _never(table)),
        "",
    ]
)
UPGRADE = (
    "ALTER TABLE submissions ADD COLUMN handed_in TEXT",
    "ALTER TABLE adjustments ADD COLUMN digest TEXT",
    COMMENTS,
    *_never("comments"),
)
# result of each submission and unit
NEWEST = "FROM results WHERE id IN (SELECT max(id) FROM results GROUP BY student, digest, unit)"


class GradebookError(OneSentence, OSError):
    """The reason why the gradebook cannot be used, or cannot be changed."""


class InUse(GradebookError):
    """Another process holds the lock."""


class Stale(GradebookError):
    """The value to change has changed since the person has seen it."""


class Gradebook:
    """The gradebook in `folder`, for a `with` statement. Raises GradebookError.

    writing: create it if it does not exist, and write to it; otherwise it must exist, and another process may write to
    it at the same time. alone: keep other graders out until it is closed; without it, a person's change is possible
    while a grader runs.
    """

    def __init__(self, folder, writing=True, alone=True):
        self.folder, self._lock, self._database = Path(folder), None, None
        path = self.folder / NAME
        if not writing and not path.is_file():
            raise GradebookError(f"{self.folder} has no {NAME}: name the folder that `grader grade --out` wrote")
        if (self.folder / "grades.csv").exists() and not (path.is_file() and path.stat().st_size):
            raise GradebookError(
                f"{path} is {'empty' if path.is_file() else 'gone'}, but grades.csv was made of it: put a copy of it"
                " back; to start again, without its adjustments and history, name another folder or remove grades.csv"
            )
        if writing and alone:
            self._lock = locked(self.folder)
        try:
            self._database = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._database.row_factory = sqlite3.Row
            self._prepare(path, writing)
        except sqlite3.Error as error:
            self.close()
            full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            raise GradebookError(
                f"{path} can't be used ({error}):"
                f" {'make room' if full else 'put a copy of it back, or name another folder'}"
            ) from None
        except BaseException:
            self.close()
            raise

    def _prepare(self, path, writing):
        self._database.execute("PRAGMA synchronous = FULL")
        [version] = self._database.execute("PRAGMA user_version").fetchone()
        if version == 0 and writing:
            self._database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT")
        elif version == 1:
            self._upgrade()
        elif version != SCHEMA_VERSION:
            raise GradebookError(
                f"{path} has schema {version}, and this grader supports {SCHEMA_VERSION}: use the grader that wrote it"
            )
        self._database.execute(f"PRAGMA query_only = {int(not writing)}")

    def _upgrade(self):
        self._database.execute("BEGIN IMMEDIATE")
        if self._database.execute("PRAGMA user_version").fetchone()[0] == 1:  # unless another process has upgraded it
            for statement in UPGRADE:
                self._database.execute(statement)
            self._database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._database.execute("COMMIT")

    def close(self):
        if self._database:
            self._database.close()
        if self._lock:
            self._lock.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def record(self, submissions):
        """Store the submissions that `collect` found. A stored submission is stored again only if it has become the one
        that counts. A refused submission that a person has since repaired, so that its files count with its submission
        time, stays repaired."""
        found, known, latest = defaultdict(list), defaultdict(set), {}
        for one in sorted(submissions, key=lambda one: one.attempt):
            found[one.student].append(one)
        with self._transaction():
            for row in self._all("SELECT * FROM submissions ORDER BY id"):
                known[row["student"]].add(_identity(row))
                latest[row["student"]] = row
            for student, attempts in found.items():
                last = _identity(dataclasses.asdict(attempts[-1]))
                if student in latest and (
                    _identity(latest[student]) == last or _repaired(latest[student], last, known)
                ):
                    continue
                for one in attempts:
                    if one is attempts[-1] or _identity(dataclasses.asdict(one)) not in known[student]:
                        self._record(one)

    def _record(self, submission):
        row = dataclasses.asdict(submission)
        row |= {"problems": json.dumps(row["problems"]), "recorded": time.time()}
        columns = [name for name in row if name != "path"]
        places = ", ".join(f":{name}" for name in columns)
        del row["path"]
        self._database.execute(f"INSERT INTO submissions ({', '.join(columns)}) VALUES ({places})", row)

    def what_is_missing(self, pairs, versions, resources=""):
        """Return the (submission, unit) pairs that have no result from these `versions` of the checks ({unit: version})
        on these `resources`, or that the grader failed to grade."""
        graded = {
            (row["student"], row["digest"], row["unit"]): row
            for row in self._all(f"SELECT student, digest, unit, version, resources, ungraded {NEWEST}")
        }
        missing = []
        for submission, unit in pairs:
            row = graded.get((submission.student, submission.digest, unit))
            if row is None or (row["version"], row["resources"], row["ungraded"]) != (versions[unit], resources, 0):
                missing.append((submission, unit))
        return missing

    def store(self, submission, unit, verdicts, version, resources=""):
        """Make `verdicts` the current result of a submission's unit. They are stored all or not at all, and are on the
        disk when this function returns, or when the `together` around it ends."""
        for verdict in verdicts:
            ungraded = verdict.points is None
            if verdict.unit != unit or verdict.status not in STATUSES or ungraded != (verdict.status == GRADER_FAULT):
                raise ValueError(f"no verdict on {unit}: {verdict}")
            if not ungraded and not 0 <= verdict.points <= verdict.max_points < math.inf:
                raise ValueError(f"points out of range: {verdict}")
        ungraded = any(verdict.points is None for verdict in verdicts)
        text = json.dumps([dataclasses.asdict(verdict) for verdict in verdicts], allow_nan=False)
        with self._transaction():
            self._database.execute(
                "INSERT INTO results (student, digest, unit, version, resources, ungraded, verdicts, stored) VALUES (?,"
                " ?, ?, ?, ?, ?, ?, ?)",
                (submission.student, submission.digest, unit, version, resources, ungraded, text, time.time()),
            )

    def adjust(self, student, unit, gap, points, reason, author, made_for=None):
        """Set a student's points for a gap; for the whole unit if `gap` is ""; for the whole grade if `unit` is also
        ""; for BONUS, the bonus points. points=None removes an adjustment.

        It belongs to the files of `made_for`, a Submission, which may be one of the student's group; by default to
        those that count now. It stays when they are graded again. Raises GradebookError.
        """
        student, unit, gap, reason, author = map(_text, (student, unit, gap, reason.strip(), author.strip()))
        latest = self._one("SELECT * FROM current_submissions WHERE student = ?", student)
        if latest is None and made_for is None:
            raise GradebookError(
                f"there is no student {student!r} in {self.folder / NAME}: see the first column of grades.csv"
            )
        owner, digest = (made_for.student, made_for.digest) if made_for else (student, latest["digest"])
        rows = self._all(f"SELECT * {NEWEST} ORDER BY student = ? AND digest = ?", owner, digest)
        units = {row["unit"]: row for row in rows}  # results of these files are last, so they replace others
        if unit != BONUS and (unit or gap) and unit not in units:
            raise GradebookError(f"nobody has a result in {unit!r}: {_one_of(units)}")
        with self._readable():
            of_units = {name: _verdicts(row) for name, row in units.items() if unit in ("", name)}
        verdicts = of_units.get(unit, [])
        gaps = {verdict.gap for verdict in verdicts}
        if gap and unit in units and (units[unit]["student"], units[unit]["digest"]) != (owner, digest):
            raise GradebookError(
                f"{student} has no result in {unit}: leave the gap out, and give points for the whole unit"
            )
        if gap and gap not in gaps:
            raise GradebookError(f"{unit} has no gap {gap!r}: {_one_of(gaps)}")
        pairs = [
            [(verdict.track, verdict.max_points) for verdict in of_unit if gap in ("", verdict.gap)]
            for of_unit in of_units.values()
        ]
        highest = math.inf if unit == BONUS else sum(map(most, pairs)) if units else sum(map(most_points, UNITS))
        if points is not None and not 0 <= points <= highest + 1e-9:
            raise GradebookError(
                f"{points:g} points can't be given: {f'{unit}, {gap}' if gap else unit or 'the whole grade'} has from 0"
                f" to {highest:g}"
            )
        if not reason or not author:
            raise GradebookError("an adjustment needs a reason and an author")
        values = (student, unit, gap, points, reason, author, time.time(), digest)
        with self._transaction():
            self._database.execute(
                "INSERT INTO adjustments (student, unit, gap, points, reason, author, time, digest) VALUES (?, ?, ?, ?,"
                " ?, ?, ?, ?)",
                values,
            )

    def submissions(self):
        """Return the last Submission of each student (with `path` None), sorted by student."""
        with self._readable():
            return [_submission(row) for row in self._all("SELECT * FROM current_submissions ORDER BY student")]

    def attempts(self):
        """Return all Submissions (with `path` None), sorted by student, the last one of each student last. Attempts are
        numbered from 1, in the order in which they were found. The same files with the same time are one attempt, also
        if one of the times is unknown."""
        with self._readable():
            found = [_submission(row) for row in self._all("SELECT * FROM submissions ORDER BY id")]
        known = defaultdict(list)  # student -> attempts, the newest last
        for one in found:
            of_student = known[one.student]
            same = [attempt for attempt in of_student if (attempt.digest, attempt.refused) == (one.digest, one.refused)]
            same = [
                attempt
                for attempt in same
                if None in (attempt.handed_in, one.handed_in) or attempt.handed_in == one.handed_in
            ]
            number = same[-1].attempt if same else max([one.attempt, *(attempt.attempt + 1 for attempt in of_student)])
            if same:
                of_student.remove(same[-1])
            of_student.append(
                dataclasses.replace(one, attempt=number, handed_in=one.handed_in or same and same[-1].handed_in or None)
            )
        return [attempt for student in sorted(known) for attempt in known[student]]

    def results(self):
        """Return the checks' results of the last submissions: {(student, unit): Verdicts}."""
        rows = self._all("SELECT * FROM current_results")
        with self._readable():
            return {(row["student"], row["unit"]): _verdicts(row) for row in rows}

    def all_results(self):
        """Return the checks' results of all attempts: {(student, digest, unit): Verdicts}."""
        rows = self._all(f"SELECT * {NEWEST}")
        with self._readable():
            return {(row["student"], row["digest"], row["unit"]): _verdicts(row) for row in rows}

    def untouched(self):
        """Return (student, digest, unit) of the results without any work: all gaps are untouched or missing."""
        # the form in which json.dumps writes a status; inside a text, a backslash precedes the quotes
        others = [f'"status": "{status}"' for status in STATUSES if status not in UNTOUCHED]
        none = " AND ".join("instr(verdicts, ?) = 0" for _ in others)
        rows = self._all(f"SELECT student, digest, unit {NEWEST} AND verdicts != '[]' AND {none}", *others)
        return {(row["student"], row["digest"], row["unit"]) for row in rows}

    def versions(self):
        """Return {(student, digest, unit): the version of the checks of its result}."""
        rows = self._all(f"SELECT student, digest, unit, version {NEWEST}")
        return {(row["student"], row["digest"], row["unit"]): row["version"] for row in rows}

    def first_version(self, unit):
        """Return the version of the checks of the first result of a unit, or "" without one."""
        row = self._one("SELECT version FROM results WHERE unit = ? ORDER BY id LIMIT 1", unit)
        return row["version"] if row else ""

    def adjustments(self):
        """Return the adjustments that were not removed: {(student, unit, gap): a dict with points, reason, author, time
        and digest}. An adjustment counts only if the files with this digest count."""
        rows = self._all(
            "SELECT *, (SELECT digest FROM submissions WHERE student = adjustments.student AND recorded <="
            " adjustments.time ORDER BY id DESC LIMIT 1) AS counted FROM current_adjustments AS adjustments WHERE"
            " points IS NOT NULL ORDER BY id"
        )
        rows = [{**row, "digest": row["counted"] if row["digest"] is None else row["digest"]} for row in rows]
        return {(row["student"], row["unit"], row["gap"]): row for row in rows}

    def comment(self, student, unit, gap, text, author, digest):
        """Store a comment to a student on a gap, on the whole unit if `gap` is "", or on everything if `unit` is also
        "". It replaces an earlier comment; an empty text removes it. digest: identifies the files that the comment is
        about. Raises GradebookError."""
        student, unit, gap, text, author = map(_text, (student, unit, gap, text.strip(), author.strip()))
        if not author:
            raise GradebookError("a comment needs an author")
        with self._transaction():
            self._database.execute(
                "INSERT INTO comments (student, unit, gap, text, author, time, digest) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (student, unit, gap, text, author, time.time(), digest),
            )

    def comments(self):
        """Return the comments that were not removed: {(student, unit, gap): a dict with text, author, time and
        digest}."""
        rows = self._all(
            "SELECT * FROM comments WHERE id IN (SELECT max(id) FROM comments GROUP BY student, unit, gap) AND text !="
            " '' ORDER BY id"
        )
        return {(row["student"], row["unit"], row["gap"]): dict(row) for row in rows}

    def version(self, student=None, unit=None, gap=""):
        """Return a text that differs after each change. It covers the whole gradebook; or one student; or the files,
        results, adjustments and comments of one gap, unit ("" for gap) or whole grade ("" for both) of a student."""
        parts = []
        for table in ("submissions", "results", "adjustments", "comments"):
            wanted = {"student": student}
            if unit is not None:
                wanted |= {"unit": unit} if table != "submissions" and (unit or table != "results") else {}
                wanted |= {"gap": gap} if table in ("adjustments", "comments") else {}
            wanted = {name: value for name, value in wanted.items() if value is not None}
            where = " AND ".join(f"{name} = :{name}" for name in wanted) or "1"
            with self._readable():
                [last] = self._database.execute(
                    f"SELECT coalesce(max(id), 0) FROM {table} WHERE {where}", wanted
                ).fetchone()
            parts.append(str(last))
        return "-".join(parts)

    def history(self, student):
        """Return all rows on a student, oldest first: dicts with the columns of their table, and its name as
        `table`."""
        rows = [
            (row[when], row["id"], {"table": table, **dict(row)})
            for table, when in (
                ("submissions", "recorded"),
                ("results", "stored"),
                ("adjustments", "time"),
                ("comments", "time"),
            )
            for row in self._all(f"SELECT * FROM {table} WHERE student = ?", student)
        ]
        return [row for _, _, row in sorted(rows, key=lambda entry: entry[:2])]

    def together(self):
        """Context manager whose changes are written to the disk at its end, all or nothing. This takes as long as
        writing one result."""
        return self._transaction()

    @contextlib.contextmanager
    def _transaction(self):
        if self._database.in_transaction:
            yield
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            raise GradebookError(
                f"{self.folder / NAME} can't be written ({error}): make room, or repair it, and run the same command"
                " again"
            ) from None
        finally:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def _all(self, query, *values):
        with self._readable():
            return self._database.execute(query, values).fetchall()

    def _one(self, query, *values):
        with self._readable():
            return self._database.execute(query, values).fetchone()

    @contextlib.contextmanager
    def _readable(self):
        """Context manager that converts the errors of a damaged database, in SQLite or in its content, to
        GradebookError."""
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise GradebookError(f"{self.folder / NAME} is damaged ({error}): put a copy of it back") from None


class Lock:
    """Read the state of the lock of the gradebook in `folder`, without acquiring it. (Closing its file would release
    the lock of this process.)"""

    def __init__(self, folder):
        try:
            self._file = open(Path(folder) / LOCK, "ab")
        except OSError as error:
            raise GradebookError(f"{folder} can't be used ({error.strerror}): name another folder") from None

    def owner(self):
        """Return the other process that holds the lock, as a text, or None."""
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, process = struct.unpack(FLOCK, fcntl.fcntl(self._file, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else f"process {process}"


def locked(folder, name=LOCK, wait=0.0):
    """Return the open lock file of a folder. The lock is held until the file is closed or the process ends. wait:
    seconds in which another process may release it. Raises GradebookError, including InUse."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / name, "a+b", buffering=0)
    except OSError as error:
        raise GradebookError(f"{folder} can't be used ({error.strerror}): name another folder") from None
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
        file.seek(0)
        owner = file.read(200).decode(errors="replace").strip() or "another process"
        file.close()
        raise InUse(f"{folder} is in use by a grader, {owner}: let it finish, or end it, or name another folder")
    with contextlib.suppress(OSError):  # on a full disk the lock still works, without its owner's name
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
    return file


def _identity(row):
    return row["attempt"], row["digest"], bool(row["late"]), row["number"], row["refused"], row["handed_in"]


def _repaired(latest, last, known):
    """Return whether `last`, the _identity of a known refused submission, was handed in at the same time as the
    readable `latest` row."""
    *_, refused, handed_in = last
    again = any(one[2:] == last[2:] for one in known[latest["student"]])
    return bool(refused and again and not latest["refused"] and latest["handed_in"] == handed_in)


def _submission(row):
    fields = {field.name: dict(row).get(field.name) for field in dataclasses.fields(Submission)}
    return Submission(
        **fields | {"path": None, "late": bool(row["late"]), "problems": tuple(json.loads(row["problems"]))}
    )


def _verdicts(row):
    return [
        Verdict(**{name: sys.intern(value) if type(value) is str else value for name, value in fields.items()})
        for fields in json.loads(row["verdicts"])
    ]


def _one_of(names):
    return f"it is one of {', '.join(sorted(names))}" if names else "nothing is graded yet"


def _text(text):
    """Return a command line's argument as valid UTF-8."""
    return text.encode("utf-8", "replace").decode()
