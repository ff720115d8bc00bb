"""qrls: release the hold that ``qsub -h`` put on a job."""

from handson.pbs import command

USAGE = """\
usage: qrls [-h hold_list] job_identifier...
       qrls --version"""


def main():
    command.step_aside("qrls")
    command.run("qrls", release_all, USAGE)


def release_all(words):
    from handson.pbs import machine, scheduler
    from handson.pbs.errors import PBSError

    words = list(words)
    holds = "u"
    if words and words[0].startswith("-h"):
        first = words.pop(0)
        holds = first[2:] or (words.pop(0) if words else "")
        if not holds or not set(holds) <= set("uosn"):
            raise PBSError("illegal -h value", 2, usage=True)
    if not words or words[0].startswith("-"):
        raise PBSError("which job? Name one or more job identifiers", 2, usage=True)
    server, status = machine.server_name(), 0
    for word in words:
        try:
            release(command.job_name(word, server), holds, server)
        except PBSError as error:
            command.say("qrls", error)
            status = error.status
    scheduler.ensure()
    return status


def release(name, holds, server):
    """Release one job. Raises PBSError."""
    import time

    from handson.pbs import store
    from handson.pbs.errors import PBSError, unknown_job

    with store.transaction() as db:
        job = store.get(db, name)
        if job is None:
            raise unknown_job(f"{name}.{server}")
        if job["state"] == "F":
            raise PBSError(f"Job has finished {name}.{server}", 35)
        if job["hold"] in holds:
            job.update(hold="n", run_count=0 if job["hold"] == "s" else job.get("run_count", 0))
            if not job["depend"]:
                job["state"] = "W" if job["not_before"] > time.time() else "Q"
            store.put(db, job)
