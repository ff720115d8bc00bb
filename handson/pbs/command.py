"""What the batch commands share: stepping aside for a real PBS, reporting errors, reading job ids."""

import os
import re
import sys

from handson import linux
from handson.errors import OneSentence
from handson.pbs.errors import PBSError, unknown_job

GUARD = "HANDSON_STEPPED_ASIDE"
SLURM_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")


def step_aside(name):
    """Where a real command `name` is on PATH, become it, with the same arguments and stdin. Commands of this package, of any copy, don't count."""
    if _stepped_aside_already(name):
        return  # the command that looked real has started this one
    for candidate in real(name):
        os.environ["SLURM_PBS_O_PATH"] = os.environ.get("PATH", os.defpath)  # Slurm's `qsub -v` drops PATH; see jobs/slurm/classroom
        os.environ[GUARD] = f"{name}:{os.getpid()}:{linux.start_time(os.getpid())}"
        try:
            os.execv(candidate, [candidate, *sys.argv[1:]])
        except OSError:
            continue  # it is not a program


def real(name):
    """The paths of a real batch system's command `name`, in the order of PATH; none where the embedded PBS is in charge."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK) and not _is_ours(candidate) and not _leads_nowhere(candidate):
            yield candidate


def batch_system():
    """("embedded" | "pbs" | "slurm", the path of its qsub): whose jobs `qsub` submits. Slurm's qsub is a wrapper around sbatch."""
    qsub = next(real("qsub"), None)
    return ("embedded" if qsub is None else "slurm" if is_slurms(qsub) else "pbs"), qsub


def _is_ours(path):
    """Whether `path` is an entry point of this package (of any installation); those are short scripts that import it by name."""
    return _mentions(path, b"handson.pbs") or os.path.realpath(path) == os.path.realpath(sys.argv[0])


def _leads_nowhere(path):
    """Whether `path` is Slurm's command of this name, on a machine that has Slurm's packages but no Slurm."""
    if os.path.dirname(path) not in ("/usr/bin", "/bin") or "SLURM_CONF" in os.environ or any(map(os.path.exists, SLURM_CONFIGURATIONS)):
        return False
    return is_slurms(path)


def is_slurms(path):
    """Whether `path` is one of Slurm's wrappers, which are scripts that name it."""
    return _mentions(path, b"Slurm")


def _mentions(path, word):
    try:
        with open(path, "rb") as file:
            return word in file.read(4096)
    except OSError:
        return False


def _stepped_aside_already(name):
    """Whether this process, or one of its ancestors, has already become what looked like the real command."""
    marked, _, mark = os.environ.get(GUARD, "").partition(":")
    pid = os.getpid()
    while marked == name and pid > 1:
        if mark == f"{pid}:{linux.start_time(pid)}":
            return True
        pid = linux.parent(pid)
    return False


def run(name, function, usage=""):
    """Call ``function(arguments)`` and end with the status that it returns. For an error, print its sentence and end with its status."""
    import sqlite3

    from handson.pbs import store

    os.umask(0o077)
    try:
        for sentence in store.take_notices():
            say(name, sentence)
        status = function(sys.argv[1:]) or 0
        sys.stdout.flush()
    except OneSentence as error:
        say(name, error)
        if getattr(error, "usage", False):
            print(usage, file=sys.stderr)
        status = error.status
    except BrokenPipeError:  # the reader has ended, as with `| head`
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
    print(f"{name}: {sentence}", file=sys.stderr)


def _database_sentence(error):
    from handson.pbs import store

    path = store.home(create=False)
    try:
        if store.is_damage(error):
            return store.recover()
    except Exception as trouble:
        return f"the job database in {path} is damaged ({error}) and could not be put right ({trouble}): move it away"
    reason = {"database or disk is full": "the disk is full", "disk I/O error": "it cannot be written, the disk may be full"}.get(str(error), error)
    return f"the job database in {path} cannot be used ({reason}): nothing was changed"


def job_name(text, server):
    """The id, without the server, that a user's job identifier means: ``5``, ``5.server``, ``28[]``, ``28[1].server``."""
    match = re.fullmatch(r"(\d{1,18})(\[\d*\])?(\.[^@\s]+)?(@\S+)?", text)
    if not match:
        raise PBSError(f"illegally formed job identifier: {text}", 1)
    named = (match[3] or "")[1:]
    if named and named.split(".")[0] != server:
        raise unknown_job(text)
    number, brackets = str(int(match[1])), match[2] or ""
    if brackets not in ("", "[]"):
        brackets = f"[{int(brackets[1:-1])}]"
    return number + brackets
