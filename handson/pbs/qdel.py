"""qdel: delete jobs, waiting or running."""

import sys
import time

from handson.pbs import command

USAGE = """\
usage: qdel [-Wforce | -Wsuppress_email=X] [-x] job_identifier...
       qdel --version"""


def main():
    command.step_aside("qdel")
    command.run("qdel", delete_all, USAGE)


def delete_all(words):
    from handson.pbs import machine, scheduler
    from handson.pbs.errors import PBSError

    if words == ["--version"]:
        print("pbs_version = embedded PBS of the hands-on course, in the manner of 23.06")
        return 0
    force, history, names = False, False, []
    words = list(words)
    while words:
        word = words.pop(0)
        if word.startswith("-W"):
            value = word[2:] or (words.pop(0) if words else "")
            if value != "force" and not value.startswith("suppress_email="):
                raise PBSError("illegal -W value", 2, usage=True)
            force = force or value == "force"
        elif word == "-x":
            history = True
        elif word.startswith("-"):
            raise PBSError(f"invalid option -- '{word[1:2]}'", 2, usage=True)
        else:
            names.append(word)
    if not names:
        raise PBSError("which job? Name one or more job identifiers", 2, usage=True)
    server, status = machine.server_name(), 0
    for name in names:
        try:
            delete(command.job_name(name, server), force, history, server)
        except PBSError as error:
            command.say("qdel", error)
            status = error.status
    scheduler.ensure()
    sys.stdout.flush()
    return status


def delete(name, force, history, server):
    """Delete one job (an array: with its sub-jobs). Raises PBSError."""
    import getpass

    from handson.pbs import ending, processes, store
    from handson.pbs.errors import PBSError, unknown_job

    with store.reading() as db:
        known = store.get(db, name)
    if known is None:
        raise unknown_job(f"{name}.{server}")
    by = f"{getpass.getuser()}@{server}"
    with store.transaction() as db:
        job = store.get(db, name)
        if job["state"] == "F" and not history:
            raise PBSError(f"Job has finished {name}.{server}", 35)
        if job["state"] == "F":
            db.execute("DELETE FROM jobs WHERE id = ? OR ? AND seq = ?", [name, bool(job["array"]), job["seq"]])
            return
        jobs = [job]
        if job["array"]:
            jobs = store.select(db, f"seq = ? AND idx IS NOT NULL AND {store.UNFINISHED}", job["seq"])
            job["delete"] = {"force": force, "by": by}
            store.put(db, job)
        running = []
        for one in jobs:
            one["delete"] = {"force": force, "by": by, "time": time.time()}
            if one["state"] in "RE":
                running.append(one["id"])
                store.put(db, one)
            else:
                ending.delete_unstarted(db, one, f"Job deleted by {by} before it ran, and terminated")
        ending.end_array(db, jobs[-1])
    for running_id in running:
        processes.ring(store.job_directory(running_id) / "bell", b"d")  # if nobody listens, the scheduler will find that the runner is gone


