"""The runner, one process per running job: it starts the script on the job's first node, enforces the walltime, cleans
up, and records the end.

All processes of the job stay below this process (a child subreaper), daemons included, and are killed when the job
ends. The runner inherits the lock in the job's directory from the scheduler, and holds it while it lives: a free lock
shows that the runner is gone.
"""

import contextlib
import json
import math
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time

from handson import linux
from handson.cluster import launcher, site, virtual_nodes
from handson.files import COURSE
from handson.pbs import attributes, delivery, placement, processes, scheduler, store

BARE_PATH = "/usr/local/bin:/usr/bin:/bin"  # if the login shell sets none
LOGIN = 20  # seconds for the login shell to print its PATH
OVERTIME, AGAIN = 10, 5  # multiples of its walltime for a job on a busy machine; seconds between checks
PRIVATE = ("/dev/shm", "/tmp", "/var/tmp")  # folders that are separate on each real node
PERSISTENCE = 60  # seconds of attempts to record the end of a job on a full disk


def main():
    job_id, lock = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(lock, False)
    os.umask(0o077)
    os.chdir("/")
    linux.adopt_orphans()
    directory = store.job_directory(job_id)
    bell = processes.Bell(directory / "bell")
    with store.reading() as db:
        job = store.get(db, job_id)
    try:
        shell, holder = start(job, directory)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        outcome = _outcome(
            delivery.EXIT_NOT_STARTED, "failed", [f"it could not be started:{where} {error.strerror}"], time.time()
        )
    else:
        outcome = watch(job, shell, bell, holder)
    record(job_id, directory, outcome)
    bell.close()
    scheduler.ensure()


def record(job_id, directory, outcome):
    """Write the end of the job into the database. If the disk is too full, the next scheduler reads `outcome` from its
    file."""
    delivery.write_outcome(directory, outcome)
    deadline = time.monotonic() + PERSISTENCE
    while True:
        try:
            return delivery.finish(job_id, outcome)
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error) and store.is_damage(error):
                with contextlib.suppress(OSError, sqlite3.Error):
                    store.leave_notice(store.recover())
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def start(job, directory):
    """Write the job's files and start its script. Return the process id of its shell, and the result of `separate`.
    Raises OSError."""
    delivery.prepare_outcome(directory)
    script = directory / "script"
    script.write_bytes(store.script(job))
    (directory / "nodefile").write_text("".join(f"{name}\n" for name in placement.node_file(job["allocation"])))
    nodes = {part["node"]: {"cores": part["cores"], "slots": part["slots"]} for part in job["allocation"]}
    strict = in_site("strict")
    job["tmpdir"] = make_tmpdir(f"pbs.{job['id']}.{job['server']}".replace("[", "-").replace("]", ""))
    holder, note = separate(nodes, job, directory, strict) if len(nodes) > 1 or strict else (None, "")
    (directory / "nodes.json").write_text(json.dumps(nodes))
    refusing = launcher.refusing(directory) if len(nodes) > 1 and not strict else {}
    environment = job_environment(job, directory) | refusing
    (directory / "environment.json").write_text(json.dumps(environment))
    streams = {stream: new_output(path) for path, _, stream in delivery.spool_files(job)}
    job["started"] = True
    (directory / "job.json").write_text(json.dumps(job))  # store.recover reads it
    out = streams.get("o") or streams["e"]
    command = job["command"] or interpreter(job, script)
    command = processes.module_command("handson.cluster.nodes", job["allocation"][0]["node"], *command)
    if holder:
        command = virtual_nodes.inside(holder.inside, job["home"], *command)
    if note:
        (streams.get("e") or out).write(
            f"handson: {note}; the nodes of this job are groups of plain processes\n".encode()
        )
    _store(job, tmpdir=job["tmpdir"], started=True)  # before the script: a job without it is started again
    os.umask(delivery.umask(job))
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=streams.get("e") or out,
            cwd=job["home"],
            env=environment,
            start_new_session=True,
        )
    finally:
        os.umask(0o077)
        for file in streams.values():
            file.close()
    job.update(_store(job, session=process.pid, session_started=linux.start_time(process.pid)))
    process.returncode = 0  # `reap` collects the process, not this object
    return process.pid, holder


def _store(job, **changes):
    """Change a job in the database, and return the stored job."""
    with store.transaction() as db:
        stored = store.get(db, job["id"])
        stored.update(changes)
        store.put(db, stored)
    return stored


def new_output(path):
    """Create an empty file for the output of a job and of its pbsdsh tasks, which append to it. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            os.unlink(path)
    # opening a FIFO must not block
    return open(path, "ab", buffering=0, opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK, 0o600))


def make_tmpdir(name):
    """Create the job's temporary directory, with this name if no job of another course folder has it."""
    path = os.path.join(tempfile.gettempdir(), name)
    try:
        os.mkdir(path, 0o700)
        return path
    except FileExistsError:
        return tempfile.mkdtemp(prefix=f"{name}.")


def login_path(job):
    """Return the PATH that the user's login shell sets for jobs, as in a real PBS; BARE_PATH if the shell does not
    print one in time."""
    environment = {"HOME": job["home"], "LOGNAME": job["user"], "USER": job["user"], "SHELL": job["login_shell"]}
    # a daemon started by the profile may keep the file open
    with tempfile.TemporaryFile() as said, contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = [job["login_shell"], "-l", "-c", 'printf "\\n%s" "$PATH"']
        silent = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        subprocess.run(command, stdout=said, cwd=job["home"], env=environment, timeout=LOGIN, **silent)
        said.seek(0)
        return os.fsdecode(said.read()).rpartition("\n")[2] or BARE_PATH
    return BARE_PATH


def separate(nodes, job, directory, strict=False):
    """Give each of `nodes` its own host name and network. Return the holder and "", or None and the reason why there
    are none. strict: also separate all other things that real nodes do not share."""
    note = virtual_nodes.why_not()
    if note:
        return None, note
    try:
        rate = simulated(job, "network") or "none"
        return virtual_nodes.start(nodes, rate, directory, private(job) if strict else (), job["tmpdir"]), ""
    except OSError as error:
        return None, error.strerror


def private(job):
    """Return the folders that are separate on each node of a strict site: the folders in PRIVATE without files that all
    nodes need."""
    shared = (COURSE, sys.prefix, store.home(create=False), job["workdir"], job["home"])
    return [folder for folder in PRIVATE if not any(f"{path}/".startswith(f"{folder}/") for path in shared)]


def simulated(job, resource):
    """Return the job's value of a resource that only the embedded PBS has: the value of `-l`, or otherwise of the
    variable, or otherwise of the site."""
    if value := job["resources"].get(resource) or job["variables"].get(f"HANDSON_{resource.upper()}"):
        return value
    return in_site(resource)


def in_site(what):
    """Return the value in the file of the site in use, or None if the file has become invalid."""
    with store.reading() as db, contextlib.suppress(site.SiteError):
        return getattr(site.load(store.meta(db, "site")), what)
    return None


def interpreter(job, script):
    """Return the program that runs the script: the program of -S, or of the script's first line, or the login shell.
    (The script needs no execute permission.)"""
    if job["shell"]:
        return [job["shell"], str(script)]
    first = script.read_bytes().split(b"\n", 1)[0]
    if first.startswith(b"#!"):
        named = first[2:].decode(errors="surrogateescape").split(None, 1)
        if named:
            return [*(word.strip() for word in named), str(script)]
    return [job["login_shell"], str(script)]


def job_environment(job, directory):
    """Return the job's environment: the variables of -v and -V, those that PBS sets, and a minimal PATH."""
    first = job["allocation"][0]["chunks"][0]
    threads = str(first.get("ompthreads", first.get("ncpus", 1)) or 1)
    environment = {
        "HOME": job["home"],
        "LOGNAME": job["user"],
        "USER": job["user"],
        "SHELL": job["login_shell"],
        "PATH": login_path(job),
        **job["variables"],
        "ENVIRONMENT": "BATCH",
        "NCPUS": threads,
        "OMP_NUM_THREADS": threads,
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_JOBCOOKIE": job["cookie"],
        "PBS_JOBDIR": job["home"],
        "PBS_JOBID": f"{job['id']}.{job['server']}",
        "PBS_JOBNAME": job["name"],
        "PBS_MOMPORT": "15003",
        "PBS_NODEFILE": str(directory / "nodefile"),
        "PBS_NODENUM": "0",
        "PBS_QUEUE": job["queue"],
        "PBS_TASKNUM": "1",
        "TMPDIR": job["tmpdir"],
        "HANDSON_NODES": str(directory / "nodes.json"),
        "HANDSON_PBS_HOME": str(store.home(create=False)),
    }
    if gpu_memory := simulated(job, "gpu_memory"):
        environment["HANDSON_GPU_MEMORY"] = gpu_memory
    if job["account"]:
        environment["PBS_ACCOUNT"] = job["account"]
    if job["index"] is not None:
        environment |= {"PBS_ARRAY_INDEX": str(job["index"]), "PBS_ARRAY_ID": f"{job['seq']}[].{job['server']}"}
    return environment


def watch(job, shell, bell, holder):
    """Wait until the job's shell ends, is deleted or has used its walltime, and end all processes of the job. Return
    the outcome."""
    began, limit = job["stime"], job["asked"]["walltime"]
    deletion, overdue, kill_at = job.get("delete"), None, None
    due = math.inf if limit is None else began + limit
    # not asked to end: the holder of virtual nodes, and the process that waits for the shell on the first one
    stay = {shell, *holder.own} if holder else set()
    ended = {}  # pid of each ended child of this process -> its wait status
    while shell not in ended:
        now = time.time()
        if now >= due and not overdue:
            if now < began + OVERTIME * limit and (others := _others(job)):
                if due == began + limit:
                    _tell(
                        job,
                        f"walltime {limit} is over; the job goes on, as {others} processes of others want the cores of"
                        " this machine",
                    )
                due = now + AGAIN
            else:
                overdue = max(limit + 1, round(now - began))
        if (overdue or deletion) and kill_at is None:
            processes.send([pid for pid in _members(job) if pid not in stay], signal.SIGTERM)
            kill_at = now + _kill_delay()
        if deletion and deletion["force"]:
            kill_at = now
        next_look = min(due, now + 60) if kill_at is None else kill_at
        if kill_at is not None and now >= kill_at:
            processes.kill_all(lambda: _members(job), ended)
        elif b"d" in bell.wait(max(0.01, next_look - now)):
            with store.reading() as db:
                deletion = (store.get(db, job["id"]) or {}).get("delete") or deletion
        processes.reap(ended)
    killed = holder and kill_at is None and not os.WIFEXITED(ended[shell])
    fallen = virtual_nodes.fallen(holder) if killed else None
    _leave_nothing(job, kill_at, ended, stay)
    notes = []
    if overdue:
        code, how = delivery.EXIT_WALLTIME, "exceeded resource walltime"
        last_line(job, f"walltime {overdue} exceeded limit {limit}")
    else:
        code = os.waitstatus_to_exitcode(ended[shell])
        if deletion:
            last_line(job, f"deleted by {deletion['by']} (qdel)")
        elif fallen:
            notes.append(fallen)
            last_line(job, fallen)
        # a real PBS runs the script below a login shell, which ends like this if only the script is killed
        if code < 0:
            code = (256 if deletion else 128) - code
        how = "failed" if code else "finished"
    return _outcome(code, how, notes, began, job)


def last_line(job, reason):
    """Write at the end of the job's stderr why it was killed."""
    _tell(job, f"job killed: {reason}")


def _tell(job, sentence):
    """Write a sentence to the job's stderr."""
    with contextlib.suppress(OSError), open(delivery.spool_files(job)[-1][0], "a") as stderr:
        stderr.write(f"=>> PBS: {sentence}\n")


def _others(job):
    """Return how many processes of other programs compete for the cores of this machine, if they keep it busy;
    otherwise 0."""
    try:
        others = linux.running() - sum((linux.stat(pid) or [b""])[0] == b"R" for pid in _members(job))
    except OSError:
        return 0
    return others if others > linux.BUSY * os.cpu_count() else 0


def _members(job):
    """Return every process of the job: all below this one, and those with the job's cookie in their environment (which
    another process started)."""
    # parents first, so that no shell continues its script after its command was ended
    below = processes.descendants(os.getpid())
    return list(dict.fromkeys([*below, *processes.carrying(f"PBS_JOBCOOKIE={job['cookie']}")]))


def _leave_nothing(job, kill_at, ended, stay):
    """End the processes that the job's shell left running: immediately, or, if they were asked to stop, after the kill
    delay. `stay` ends last."""
    while kill_at is not None and time.time() < kill_at and set(_members(job)) - stay:
        time.sleep(0.02)
        processes.reap(ended)
    processes.kill_all(lambda: _members(job), ended)
    processes.reap(ended)


def _kill_delay():
    with store.reading() as db:
        path = store.meta(db, "site")
    with contextlib.suppress(Exception):  # the file may have become invalid
        return site.load(path).kill_delay
    return 10


def _outcome(exit_status, how, notes, began, job=None):
    now = time.time()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = attributes.resources_used(job, usage.ru_utime + usage.ru_stime, now - began, usage.ru_maxrss << 10)
    return {"exit_status": exit_status, "how": how, "notes": notes, "time": now, "used": used}
