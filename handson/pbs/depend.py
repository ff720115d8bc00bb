"""``-W depend``: decide whether a held job may start, from the ends of the jobs that it waits for."""

import re

from handson.pbs import store
from handson.pbs.pbs_errors import PBSError

AFTER = ("after", "afterok", "afternotok", "afterany")
BEFORE = {"before": "after", "beforeok": "afterok", "beforenotok": "afternotok", "beforeany": "afterany"}


def parse(text):
    """Convert ``afterok:5:6,after:7.SERVER,on:2`` to [["afterok", ["5", "6"]], ...]. Raises ValueError."""
    conditions = []
    for part in text.split(","):
        kind, *arguments = part.strip().split(":")
        if kind == "on" and len(arguments) == 1 and re.fullmatch("[1-9][0-9]{0,5}", arguments[0]):
            conditions.append(["on", int(arguments[0])])
        elif (
            kind in (*AFTER, *BEFORE)
            and arguments
            and all(re.match(r"[0-9]+(\[[0-9]*\])?(\.|$)", name) for name in arguments)
        ):
            conditions.append([kind, [name.partition(".")[0] for name in arguments]])
        else:
            raise ValueError(f"{part!r} is not a dependency")
    return conditions


def register(db, job):
    """Convert the new job's before... conditions to after... conditions of the jobs that they name. Raises PBSError."""
    for kind, names in job["depend"]:
        for name in names if kind in BEFORE else ():
            other = store.get(db, name)
            if other is None or other["state"] == "F" or not any(condition[0] == "on" for condition in other["depend"]):
                raise PBSError("Invalid Job Dependency", 206)  # PBS requires -W depend=on:COUNT of that job
            on = next(condition for condition in other["depend"] if condition[0] == "on")
            on[1] = max(0, on[1] - 1)
            other["depend"].append([BEFORE[kind], [job["id"]]])
            store.put(db, other)
    job["depend"] = [condition for condition in job["depend"] if condition[0] not in BEFORE]


def judge(db, job):
    """Return ("ready" | "waits" | "never", reason) for a job with dependencies."""
    answer = "ready"
    for kind, names in job["depend"]:
        if kind == "on":
            answer = "waits" if names > 0 else answer
            continue
        for name in names:
            other = store.get(db, name)
            if other is None:
                return "never", f"Dependency request for job rejected: Unknown Job Id {name}.{job['server']}"
            met = _met(kind, other)
            if met is None:
                answer = "waits"
            elif not met:
                return "never", f"Job deleted as result of dependency on job {name}.{job['server']}"
    return answer, ""


def _met(kind, other):
    """Return True or False, or None if it is not decided yet."""
    over, code = other["state"] == "F", other.get("exit_status")
    if kind == "after":
        return True if over or other["state"] in "RBE" else None
    if not over:
        return None
    return {"afterany": True, "afterok": code == 0, "afternotok": code != 0}[kind]
