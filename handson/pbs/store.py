"""The storage of jobs: one SQLite database in the user's own directory. A job is a dict, stored as JSON in a row.

Every change is a transaction that is on the disk when it returns, so after a power cut a job is stored completely or
not at all. The rollback journal is kept (PERSIST), so that even a full disk has room for the few bytes that end a
job.
"""

import contextlib
import fcntl
import json
import os
import sqlite3
import time
import zlib
from pathlib import Path

from handson.files import COURSE
from handson.pbs import processes
from handson.pbs.pbs_errors import PBSError

UNFINISHED = "state != 'F'"
HISTORY = 14 * 24 * 3600  # seconds for which finished jobs are remembered: PBS's job_history_duration
SCHEMA = """
CREATE TABLE jobs (id TEXT PRIMARY KEY, seq INTEGER, idx INTEGER, state TEXT, data TEXT NOT NULL, script BLOB);
CREATE INDEX jobs_by_state ON jobs (state);
CREATE INDEX jobs_by_number ON jobs (seq);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
"""


def home(create=True):
    """Return the directory of all state, separate for each user and course folder, with mode 0700.

    It is HANDSON_PBS_HOME, or a folder in handson/pbs in XDG_STATE_HOME or ~/.local/state: not in the course folder,
    which may be on a file system without the locks that SQLite needs.
    """
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    own = f"{COURSE.name}-{zlib.crc32(os.fsencode(COURSE)):08x}"
    path = Path(os.environ.get("HANDSON_PBS_HOME") or Path(state) / "handson" / "pbs" / own).absolute()
    try:
        if create:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            (path / "jobs").mkdir(mode=0o700, exist_ok=True)
            processes.make_bell(path / "scheduler.bell")
        elif not path.exists():
            return path
        status = path.stat()
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise PBSError(
            f"{path} cannot hold the jobs ({error.strerror}): make it usable, or name another directory in"
            " HANDSON_PBS_HOME"
        ) from None
    if status.st_uid != os.geteuid():
        raise PBSError(f"{path} belongs to another user: name a directory of your own in HANDSON_PBS_HOME")
    return path


def job_directory(job_id):
    """Return the directory of a started job. Its name has no brackets, because students' scripts use $PBS_NODEFILE
    unquoted."""
    return home(create=False) / "jobs" / job_id.replace("[", "-").replace("]", "")


def _connect(path):
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    db.execute("PRAGMA journal_mode = PERSIST")
    db.execute("PRAGMA synchronous = FULL")
    return db


@contextlib.contextmanager
def transaction():
    """Context manager with a connection inside a transaction, which commits at the end of the block and rolls back on
    an error."""
    path = home() / "jobs.sqlite"
    db = _connect(path)
    try:
        db.execute("BEGIN IMMEDIATE")
        if db.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in SCHEMA.split(";"):
                db.execute(statement)
            db.execute("PRAGMA user_version = 1")
        yield db
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        db.close()


@contextlib.contextmanager
def reading():
    """Context manager with a connection for reading, or None if nothing was ever submitted here."""
    path = home(create=False) / "jobs.sqlite"
    if not path.exists():
        yield None
        return
    db = _connect(path)
    try:
        yield db if db.execute("PRAGMA user_version").fetchone()[0] else None
    finally:
        db.close()


def _decode(row):
    try:
        return json.loads(row[0])
    except ValueError:
        raise sqlite3.DatabaseError("malformed job record") from None


def get(db, job_id):
    """Return the job `job_id` (without the server's name), or None."""
    row = db and db.execute("SELECT data FROM jobs WHERE id = ?", [job_id]).fetchone()
    return _decode(row) if row else None


def select(db, where="1", *parameters):
    """Return the jobs that meet an SQL condition, in the order of submission."""
    if db is None:
        return []
    return [_decode(row) for row in db.execute(f"SELECT data FROM jobs WHERE {where} ORDER BY seq, idx", parameters)]


def put(db, job, script=None):
    """Store `job` (a new job with its script)."""
    job["mtime"] = time.time()
    values = {
        "id": job["id"],
        "seq": job["seq"],
        "idx": job["index"],
        "state": job["state"],
        "data": json.dumps(job),
        "script": script,
    }
    db.execute(
        "INSERT INTO jobs (id, seq, idx, state, data, script) VALUES (:id, :seq, :idx, :state, :data, :script)"
        " ON CONFLICT (id) DO UPDATE SET state = :state, data = :data",
        values,
    )


def forget():
    """Remove the jobs that ended longer than HISTORY ago (arrays as a whole), except those that an unfinished job waits
    for."""
    with transaction() as db:
        needed = {
            name.partition("[")[0]
            for job in select(db, UNFINISHED)
            for kind, names in job["depend"]
            if kind != "on"
            for name in names
        }
        for job in select(db, "state = 'F' AND idx IS NULL"):
            if job["obittime"] < time.time() - HISTORY and str(job["seq"]) not in needed:
                db.execute("DELETE FROM jobs WHERE seq = ?", [job["seq"]])


def script(job):
    """Return the script (bytes) of a job; a sub-job has its array's."""
    with reading() as db:
        return db.execute("SELECT script FROM jobs WHERE seq = ? AND script IS NOT NULL", [job["seq"]]).fetchone()[0]


def meta(db, key, default=None):
    row = db and db.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchone()
    return row[0] if row else default


def site_in_force(db):
    """Return the site file for which the unfinished jobs were submitted, or None if there are none."""
    if db is None or not db.execute(f"SELECT 1 FROM jobs WHERE {UNFINISHED} LIMIT 1").fetchone():
        return None
    return meta(db, "site")


def set_meta(db, key, value):
    db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", [key, str(value)])


def is_damage(error):
    """Return whether a sqlite3 error means that the database itself is damaged (not busy, not out of space)."""
    return type(error) is sqlite3.DatabaseError or getattr(error, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    )


def recover():
    """Move a damaged database aside, and copy all readable rows into a new one. Return a sentence about it.

    A process without a terminal passes the sentence to `leave_notice`.
    """
    path = home() / "jobs.sqlite"
    with open(home() / "repair.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_sound(path):
            return "the job database was damaged, and has just been repaired by another command: repeat this one"
        aside = path.with_name(f"jobs.sqlite.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
        rows, following = _salvage(path)
        os.replace(path, aside)
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}-journal", f"{aside}-journal")
        with transaction() as db:
            db.executemany("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?)", rows.values())
            set_meta(db, "next", following)
    return (
        f"the job database was damaged and is kept as {aside}; {len(rows)} of its jobs were recovered:"
        " look at them with qstat -x, and submit again what is missing"
    )


def leave_notice(sentence):
    """Store a sentence that the next command prints."""
    with open(home() / "notice", "a") as file:
        file.write(f"{sentence}\n")


def take_notices():
    """Return the sentences of `leave_notice`; each is returned only once."""
    path = home(create=False) / "notice"
    try:
        os.rename(path, f"{path}.{os.getpid()}")
    except OSError:
        return []
    taken = Path(f"{path}.{os.getpid()}")
    sentences = taken.read_text().splitlines()
    taken.unlink()
    return sentences


def _is_sound(path):
    try:
        db = sqlite3.connect(path, timeout=30)
        try:
            return (
                db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
                and db.execute("PRAGMA user_version").fetchone()[0] == 1
            )
        finally:
            db.close()
    except sqlite3.DatabaseError:
        return False


def _salvage(path):
    """Return (job id -> row, from a damaged database and from the directories of jobs that had started; the number of
    the next job)."""
    rows, highest = {}, -1
    for record in (home() / "jobs").glob("*/job.json"):
        with contextlib.suppress(OSError, ValueError):
            job = json.loads(record.read_text())
            rows[job["id"]] = (
                job["id"],
                job["seq"],
                job["index"],
                job["state"],
                json.dumps(job),
                (record.parent / "script").read_bytes(),
            )
    with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(path)) as db:
        for row in db.execute("SELECT id, seq, idx, state, data, script FROM jobs NOT INDEXED"):
            with contextlib.suppress(ValueError, TypeError):
                json.loads(row[4])
                rows[row[0]] = row
    with contextlib.suppress(OSError, ValueError):
        highest = int((home() / "last-number").read_text())
    return rows, max([highest, *(row[1] for row in rows.values())]) + 1


def note_number(seq):
    """Write the number of the last job next to the database, so that no number is used twice even if the database is
    damaged."""
    with contextlib.suppress(OSError):
        (home() / "last-number").write_text(f"{seq}\n")
