"""The scheduler runs while there are jobs, and ends when the queue is empty. Every command starts it with `ensure` if
needed.

It holds a lock, so there is only one. It releases the lock in the transaction in which it finds no more work, so a job
that is submitted at that moment is either seen by this scheduler or starts the next one.
"""

import contextlib
import os
import signal
import sqlite3
import sys
import time

from handson import linux
from handson.cluster import site
from handson.pbs import delivery, depend, machine, placement, processes, store

SAFETY_POLL = 5  # seconds: submissions from another machine (a shared home directory) ring no bell here
ADOPTED_POLL = 1  # seconds: runners that an earlier scheduler started send no SIGCHLD here
MOST_RUNS = 21  # attempts to run a job, as in PBS
PATIENCE = 600  # seconds to keep trying when the disk is full


def ensure():
    """Wake the scheduler, or start one if there is none and there is work."""
    home = store.home(create=False)
    if processes.ring(home / "scheduler.bell") or not has_work():
        return
    os.environ["HANDSON_PBS_HOME"] = str(home)
    processes.spawn("handson.pbs.scheduler", log=str(home / "scheduler.log"))


def has_work():
    """Return whether a job could start, runs, or waits for another one (held jobs wait for a person)."""
    with store.reading() as db:
        if db is None:
            return False
        if db.execute("SELECT 1 FROM jobs WHERE state NOT IN ('F', 'H') LIMIT 1").fetchone():
            return True
        return any(job["depend"] and job["hold"] == "n" for job in store.select(db, "state = 'H'"))


def main():
    os.umask(0o077)
    home = store.home()
    lock = processes.try_lock(home / "scheduler.lock")
    if lock is None:
        return
    os.chdir("/")
    if os.environ.get("HANDSON_PBS_PROCESS") == "started inside a job":
        os.sched_setaffinity(0, range(os.cpu_count()))  # the job was pinned; the scheduler must not be
    linux.adopt_orphans()
    bell = processes.Bell(home / "scheduler.bell")
    log = home / "scheduler.log"
    if log.exists() and log.stat().st_size > 1_000_000:
        log.unlink()
    with contextlib.suppress(OSError, sqlite3.Error):
        store.forget()
    runners, since_trouble, left = set(), None, []

    def leave():
        left.append(True)
        bell.close()
        os.close(lock)

    while True:
        try:
            ended = {}
            processes.reap(ended)
            runners -= ended.keys()
            kill_orphans(runners)
            recover_lost_jobs()
            wait = one_pass(runners, leave)
            since_trouble = None
        except (OSError, sqlite3.Error) as error:
            print(f"{time.ctime()}: {error!r}", file=sys.stderr, flush=True)
            if isinstance(error, sqlite3.Error) and store.is_damage(error):
                store.leave_notice(store.recover())
            if left:
                return
            since_trouble = since_trouble or time.monotonic()
            if time.monotonic() - since_trouble > PATIENCE:
                return  # the next command tries again
            wait = 1
        if wait is None:
            return
        bell.wait(wait)


def one_pass(runners, leave):
    """Start all jobs that can start. Return the longest time to wait in seconds, or None if there is no more work.

    In the latter case, `leave` is called before another process can submit a job.
    """
    now, locks = time.time(), {}
    try:
        with store.transaction() as db:
            jobs = store.select(db, store.UNFINISHED)
            begin = plan(db, jobs, now)
            for job in begin:
                locks[job["id"]] = _take_lock(job["id"])
            running = [job for job in jobs if job["state"] in "RE"]
            due = [job["not_before"] - now for job in jobs if job["state"] == "W"]
            if not running and not due:
                leave()
                return None
    except BaseException:
        for lock in locks.values():
            os.close(lock)
        raise
    for job_id, lock in locks.items():
        log = str(store.home() / "scheduler.log")
        runners.add(processes.spawn("handson.pbs.runner", job_id, str(lock), keep=lock, log=log))
        os.close(lock)
    adopted = len(running) > len(runners)
    return max(0.01, min([ADOPTED_POLL if adopted else SAFETY_POLL, *due]))


def _take_lock(job_id):
    """Create the job's directory and lock it; the runner inherits the lock. (Called before the job is marked as
    running, so that no runner is missed.)"""
    directory = store.job_directory(job_id)
    directory.mkdir(mode=0o700, exist_ok=True)
    lock = processes.try_lock(directory / "lock")
    if lock is None:
        raise OSError(f"the lock of job {job_id} is held although the job does not run")
    return lock


def plan(db, jobs, now):
    """Update the states of `jobs` (all unfinished ones, oldest first). Return those that start now, already marked.

    First come, first served: jobs that fit run together, and the first job that has to wait delays all later ones. A
    job that can never run does not block others.
    """
    by_id = {job["id"]: job for job in jobs}
    for job in jobs:
        if job["state"] == "W" and job["not_before"] <= now:
            _set(db, job, state="Q")
        if job["state"] == "H" and job["hold"] == "n" and job["depend"]:
            answer, why = depend.judge(db, job)
            if answer == "never":
                delivery.delete_unstarted(db, job, why)
                for subjob in jobs:
                    if subjob["seq"] == job["seq"] and subjob["state"] != "F":
                        delivery.delete_unstarted(db, subjob, why)
            elif answer == "ready":
                _set(db, job, state="W" if job["not_before"] > now else "Q")
    waiting = [job for job in jobs if job["state"] == "Q" and job["array"] is None and _array_lets(job, by_id)]
    if not waiting:
        return []
    try:
        nodes = machine.nodes(site.load(store.meta(db, "site")))
    except site.SiteError as error:
        for job in waiting:
            _set(db, job, comment=f"Not Running: {error}")
        return []
    running = [job["allocation"] for job in jobs if job["state"] in "RE"]
    begin, blocked = [], False
    for job in waiting:
        array = by_id.get(f"{job['seq']}[]") if job["index"] is not None else None
        if array and array["array"]["limit"] and _running_of(array, jobs) >= array["array"]["limit"]:
            continue
        if blocked and array:
            continue
        impossible = placement.impossible(job["asked"], nodes)
        if impossible or blocked:
            comment = impossible or "Not Running: Job would break strict sorted order"
            _set(db, job, comment=comment)
            if array and array["state"] == "Q":
                _set(db, array, comment=comment)
            continue
        try:
            allocation = placement.place(job["asked"], nodes, running)
        except placement.Waits as waits:
            _set(db, job, comment=str(waits))
            if array and array["state"] == "Q":
                _set(db, array, comment=str(waits))
            blocked = True
            continue
        mark_running(job, allocation, running, now)
        store.put(db, job)
        if array and array["state"] == "Q":
            _set(db, array, state="B", stime=now, comment=f"Job Array Began at {_moment(now)}")
        running.append(allocation)
        begin.append(job)
    return begin


def _set(db, job, **changes):
    if any(job.get(key) != value for key, value in changes.items()):
        job.update(changes)
        store.put(db, job)


def _array_lets(job, by_id):
    """Return whether a sub-job's array is neither held nor waiting."""
    return job["index"] is None or by_id[f"{job['seq']}[]"]["state"] in "QB"


def _running_of(array, jobs):
    return sum(job["seq"] == array["seq"] and job["state"] in "RE" for job in jobs)


def _moment(seconds):
    return time.strftime("%a %b %d at %H:%M", time.localtime(seconds))


def mark_running(job, allocation, running, now):
    vnodes = placement.exec_vnode(allocation)
    again = f" (again: {job['requeued']})" if job.get("requeued") else ""
    job.update(
        state="R",
        stime=now,
        allocation=allocation,
        exec_host=placement.exec_host(allocation, running),
        exec_vnode=vnodes,
        comment=f"Job run at {_moment(now)} on {vnodes}{again}",
        run_count=job.get("run_count", 0) + 1,
        boot=processes.boot_identity(),
        cookie=os.urandom(16).hex().upper(),
        started=False,
    )


def kill_orphans(runners):
    """Kill the processes of a killed runner: children of this process that are not runners, and all processes below
    them."""
    for _ in range(100):
        orphans = [pid for pid in processes.children(os.getpid()) if pid not in runners]
        if not orphans:
            return
        for pid in orphans:
            processes.send([*processes.descendants(pid), pid], signal.SIGKILL)
        time.sleep(0.005)
        processes.reap({})


def recover_lost_jobs():
    """Find the jobs that are marked as running but whose runner is gone, and correct their states."""
    with store.reading() as db:
        running = store.select(db, "state IN ('R', 'E')")
    for job in running:
        directory = store.job_directory(job["id"])
        with contextlib.suppress(FileNotFoundError):
            lock = processes.try_lock(directory / "lock", create=False)
            if lock is None:
                continue  # its runner is alive
            os.close(lock)
        with store.reading() as db:
            job = store.get(db, job["id"])
        if job["state"] in "RE":
            recover(job, directory)


def recover(job, directory):
    """Correct a job whose runner is gone: it has ended, is put back into the queue (the machine went down), or has
    failed."""
    outcome = delivery.read_outcome(directory)
    if outcome:
        return delivery.finish(job["id"], outcome)
    _kill_leftovers(job)
    rebooted = job["boot"] != processes.boot_identity()
    if job.get("delete"):
        return _fail(job, delivery.EXIT_LOST, [])
    if not job["started"]:
        return requeue(job, "its start was interrupted")
    if rebooted and job["rerunnable"]:
        return requeue(job, f"the machine went down during run {job['run_count']}")
    if rebooted:
        return _fail(job, delivery.EXIT_REBOOT, ["the machine went down while it ran, and it is not rerunnable (-r n)"])
    return _fail(job, delivery.EXIT_LOST, ["the process that ran it was killed, and so was what was left of the job"])


def _fail(job, exit_status, notes):
    now = time.time()
    used = {"ncpus": job["asked"]["listing"].get("ncpus", "1")}
    delivery.finish(job["id"], {"exit_status": exit_status, "how": "failed", "notes": notes, "time": now, "used": used})


def requeue(job, why):
    """Put a job that ran back into the queue. Its output so far is dropped, as in PBS."""
    delivery.remove_files(job)
    with store.transaction() as db:
        job = store.get(db, job["id"])
        job.update(state="Q", requeued=why, comment=f"Not Running: requeued, {why}")
        for key in ("allocation", "exec_host", "exec_vnode", "session", "stime"):
            job.pop(key, None)
        if job["run_count"] >= MOST_RUNS:
            job.update(state="H", hold="s", comment="job held, too many failed attempts to run")
        store.put(db, job)


def _kill_leftovers(job):
    """Kill the remaining processes of a job whose runner is gone."""

    def find():
        session = (
            processes.in_session(job["session"], job["session_started"]) if same_boot and job.get("session") else []
        )
        return sorted(set(session) | set(processes.carrying(f"PBS_JOBCOOKIE={job['cookie']}")))

    same_boot = job["boot"] == processes.boot_identity()
    with contextlib.suppress(OSError):
        processes.kill_all(find, {})
