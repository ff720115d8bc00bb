"""qdel: delete waiting or running jobs."""

import time

from handson import linux
from handson.pbs import command

USAGE = """\
usage:
	qdel [-W force|suppress_email=X] [-x] job_identifier...
	qdel --version"""


def main():
    command.step_aside("qdel")
    command.run("qdel", delete_all, USAGE)


def delete_all(words):
    from handson.pbs import machine, scheduler
    from handson.pbs.pbs_errors import PBSError, illegal_option_value

    found, names, behind = command.split(words, "W", "x")
    values = [value for letter, value in found if letter == "W"]
    if any(value != "force" and not value.startswith("suppress_email=") for value in values):
        raise illegal_option_value("W")
    names += behind or []
    if not names:
        raise PBSError(status=2, usage=True)
    server = machine.server_name()
    try:
        for name in names:  # as in PBS, the first job that cannot be deleted ends the loop
            delete(command.job_name(name, server), "force" in values, ("x", "") in found, server)
    finally:
        scheduler.ensure()


def delete(name, force, history, server):
    """Delete one job (an array: with its sub-jobs). Raises PBSError."""

    from handson.pbs import delivery, processes, store
    from handson.pbs.pbs_errors import job_has_finished, unknown_job

    with store.reading() as db:
        known = store.get(db, name)
    if known is None:
        raise unknown_job(f"{name}.{server}")
    by = f"{linux.user().pw_name}@{server}"
    with store.transaction() as db:
        job = store.get(db, name)
        if job["state"] == "F" and not history:
            raise job_has_finished(f"{name}.{server}")
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
                delivery.delete_unstarted(db, one, f"Job deleted by {by} before it ran, and terminated")
        delivery.end_array(db, jobs[-1])
    for running_id in running:
        # if nothing listens, the scheduler will find that the runner is gone
        processes.ring(store.job_directory(running_id) / "bell", b"d")
