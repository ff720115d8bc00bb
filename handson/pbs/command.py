"""The code that batch commands share: they call a real PBS if there is one, report errors, and parse job ids."""

import contextlib
import os
import re
import shutil
import sys

from handson import linux
from handson.errors import OneSentence, refuse_gone_folder
from handson.pbs.pbs_errors import PBSError, illegal_job_id

GUARD = "HANDSON_STEPPED_ASIDE"
RELEASE = "23.06"  # the OpenPBS release whose answers the embedded commands reproduce
VERSION = f"pbs_version = embedded PBS of the hands-on course, in the manner of {RELEASE}"
SLURM_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")


def step_aside(name, below=""):
    """Replace this process with a real command `name` on PATH, if there is one, with the same arguments and stdin.
    Commands of any copy of this package are skipped. below: a sentence to print below the real command's output."""
    if _stepped_aside_already(name):
        return  # this process was started by the supposedly real command
    for candidate in real(name):
        # Slurm's `qsub -v` drops PATH; see jobs/slurm/classroom
        os.environ["SLURM_PBS_O_PATH"] = os.environ.get("PATH", os.defpath)
        os.environ[GUARD] = f"{name}:{os.getpid()}:{linux.start_time(os.getpid())}"
        try:
            if below:
                import subprocess

                status = subprocess.call([candidate, *sys.argv[1:]])
                print(f"hint: {below}", file=sys.stderr)
                sys.exit(status)
            os.execv(candidate, [candidate, *sys.argv[1:]])
        except OSError:
            continue  # not an executable


def real(name):
    """Return the paths of a real batch system's command `name`, in the order of PATH, or [] if the embedded PBS is
    used."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        if (
            os.path.isfile(candidate)
            and os.access(candidate, os.X_OK)
            and not _is_ours(candidate)
            and not _leads_nowhere(candidate)
        ):
            yield candidate


def batch_system():
    """Return ("embedded" | "pbs" | "slurm", the path of its qsub): the system to which `qsub` submits. Slurm's qsub is
    a wrapper around sbatch. The embedded PBS of a strict site counts as a real one."""
    qsub = next(real("qsub"), None)
    if qsub is None and _is_strict():
        return "pbs", shutil.which("qsub")
    return ("embedded" if qsub is None else "slurm" if is_slurms(qsub) else "pbs"), qsub


def _is_strict():
    """Return whether the site in use is strict."""
    from handson.cluster import site

    try:
        return site.load().strict
    except site.SiteError:
        return False


def _is_ours(path):
    """Return whether `path` is an entry point of any installation of this package; those are short scripts that import
    it by name."""
    return _mentions(path, b"handson.pbs") or os.path.realpath(path) == os.path.realpath(sys.argv[0])


def _leads_nowhere(path):
    """Return whether `path` is Slurm's command of this name, on a machine that has Slurm's packages but no Slurm."""
    if (
        os.path.dirname(path) not in ("/usr/bin", "/bin")
        or "SLURM_CONF" in os.environ
        or any(map(os.path.exists, SLURM_CONFIGURATIONS))
    ):
        return False
    return is_slurms(path)


def is_slurms(path):
    """Return whether `path` is one of Slurm's wrappers, which are scripts that name it."""
    return _mentions(path, b"Slurm")


def _mentions(path, word):
    try:
        with open(path, "rb") as file:
            return word in file.read(4096)
    except OSError:
        return False


def _stepped_aside_already(name):
    """Return whether this process, or one of its ancestors, has already replaced itself with a supposedly real
    command."""
    marked, _, mark = os.environ.get(GUARD, "").partition(":")
    pid = os.getpid()
    while marked == name and pid > 1:
        if mark == f"{pid}:{linux.start_time(pid)}":
            return True
        pid = linux.parent(pid)
    return False


def run(name, function, usage=""):
    """Call ``function(arguments)``, and end with the status that it returns. For an error, print its sentence and end
    with its status."""
    import sqlite3

    from handson.pbs import store

    os.umask(0o077)
    if sys.argv[1:] == ["--version"]:
        print(VERSION)
        sys.exit(0)
    try:
        refuse_gone_folder()
        for sentence in store.take_notices():
            say(name, sentence)
        status = function(sys.argv[1:]) or 0
        sys.stdout.flush()
    except OneSentence as error:
        sys.stdout.flush()
        report(name, error, usage)
        status = error.status
    except BrokenPipeError:  # the reader has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 0
    except KeyboardInterrupt:
        status = 130
    except sqlite3.Error as error:
        status = 1
        say(name, _database_sentence(error))
    except OSError as error:
        status = 1
        say(name, f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    sys.exit(status)


def say(name, sentence):
    for line in str(sentence).splitlines():
        print(f"{name}: {line}", file=sys.stderr)


def report(name, error, usage=""):
    """Print a OneSentence, and the additional lines of a PBSError."""
    if first := getattr(error, "first", ""):
        print(first, file=sys.stderr)
    say(name, error)
    if getattr(error, "usage", False):
        print(usage, file=sys.stderr)
    if hint := getattr(error, "hint", ""):
        print(f"hint: {hint}", file=sys.stderr)


def split(words, with_value, without_value):
    """Return [(letter, value), ...], the other words, and the words after ``--`` (None without it). Options may follow
    other words."""
    found, others, words = [], [], list(words)
    while words:
        word = words.pop(0)
        if word == "--":
            return found, others, words
        if not word.startswith("-") or word == "-":
            others.append(word)
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in without_value:
                found.append((letter, ""))
            elif letter in with_value:
                if not letters and not words:
                    raise PBSError(f"option requires an argument -- '{letter}'", 2, usage=True)
                found.append((letter, letters or words.pop(0)))
                letters = ""
            else:
                raise PBSError(f"invalid option -- '{letter}'", 2, usage=True)
    return found, others, None


def for_each_job(name, words, act):
    """Call ``act(job id without the server)`` for each job in `words`. Return the exit status of the last error."""
    from handson.pbs import machine, scheduler

    if not words:
        raise PBSError(status=2, usage=True)
    server, status = machine.server_name(), 0
    for word in words:
        try:
            act(job_name(word, server))
        except PBSError as error:
            report(name, error)
            status = error.status
    scheduler.ensure()
    return status


@contextlib.contextmanager
def unfinished(name):
    """Context manager with (db, job): a transaction in which the unfinished job `name` can be changed; it is stored at
    the end. Raises PBSError."""
    from handson.pbs import machine, store
    from handson.pbs.pbs_errors import job_has_finished, unknown_job

    job_id = f"{name}.{machine.server_name()}"
    with store.reading() as db:  # reading must not create a database
        if store.get(db, name) is None:
            raise unknown_job(job_id)
    with store.transaction() as db:
        job = store.get(db, name)
        if job is None:
            raise unknown_job(job_id)
        if job["state"] == "F":
            raise job_has_finished(job_id)
        yield db, job
        store.put(db, job)


def _database_sentence(error):
    from handson.pbs import store

    path = store.home(create=False)
    try:
        if store.is_damage(error):
            return store.recover()
    except Exception as trouble:
        return f"the job database in {path} is damaged ({error}) and could not be repaired ({trouble}): move it away"
    reason = {
        "database or disk is full": "the disk is full",
        "disk I/O error": "it cannot be written, the disk may be full",
    }.get(str(error), error)
    return f"the job database in {path} cannot be used ({reason}): nothing was changed"


def job_name(text, server):
    """Return the id, without the server, of a job identifier: ``5``, ``5.server``, ``28[]``, ``28[1].server``."""
    match = re.fullmatch(r"(\d{1,18})(\[\d*\])?(\.[^@\s]+)?(@\S+)?", text)
    if not match or match[3] and match[3][1:].split(".")[0] != server:
        raise illegal_job_id(text)
    number, brackets = str(int(match[1])), match[2] or ""
    if brackets not in ("", "[]"):
        brackets = f"[{int(brackets[1:-1])}]"
    return number + brackets
