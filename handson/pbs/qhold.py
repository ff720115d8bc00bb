"""qhold and qrls: hold a waiting job, and release it."""

import time

from handson.pbs import command

USAGE = """\
usage: {0} [-h hold_list] job_identifier...
       {0} --version"""


def main():
    command.step_aside("qhold")
    command.run("qhold", hold_all, USAGE.format("qhold"))


def hold_all(words):
    _, names = parse(words, "qhold")
    return command.for_each_job("qhold", names, hold)


def parse(words, name):
    """Return (the kinds of holds: u for the user's, o and s for the system's, n for none; the job identifiers). Raises
    PBSError."""
    from handson.pbs.pbs_errors import illegal_option_value

    found, names, behind = command.split(words, "h", "")
    kinds = found[-1][1].strip() if found else "u"
    if not kinds or not set(kinds) <= set("uosn"):
        raise illegal_option_value("h")
    return kinds, names + (behind or [])


def hold(name):
    """Hold a job, so that it does not start before it is released. A running job continues. Raises PBSError."""
    with command.unfinished(name) as (_, job):
        if job["hold"] == "n":
            job["hold"] = "u"
        if job["state"] in "QW":
            job.update(state="H", comment=None)


def release(name, kinds):
    """Release a job from its hold, if the hold is one of these `kinds`. Raises PBSError."""
    with command.unfinished(name) as (_, job):
        if job["hold"] in kinds:
            job.update(hold="n", run_count=0 if job["hold"] == "s" else job.get("run_count", 0))
            if job["state"] == "H" and not job["depend"]:
                job["state"] = "W" if job["not_before"] > time.time() else "Q"
