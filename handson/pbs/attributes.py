"""A job's attributes with PBS's names, in PBS's order. `qstat -f` prints them."""

import shlex
import time

from handson.pbs import delivery, processes
from handson.pbs.resources import format_time

SUBSTATES = {"Q": 10, "H": 20, "W": 30, "R": 42, "E": 51, "B": 42}


def job_attributes(job, now=None):
    """Return the attributes of a job: name -> text, or a dict of texts (Resource_List, resources_used,
    Variable_List)."""
    now = time.time() if now is None else now
    started = job.get("stime")
    used = job.get("used") or used_so_far(job, now)
    return {
        name: value
        for name, value in {
            "Job_Name": job["name"],
            "Job_Owner": f"{job['user']}@{job['server']}",
            "resources_used": used,
            "job_state": job["state"],
            "queue": job["queue"],
            "server": job["server"],
            "Account_Name": job["account"],
            "Checkpoint": "u",
            "ctime": time.ctime(job["ctime"]),
            "depend": ",".join(_condition(job, *condition) for condition in job["depend"]),
            "Error_Path": _path(job, "e"),
            "exec_host": job.get("exec_host"),
            "exec_vnode": job.get("exec_vnode"),
            "Execution_Time": time.ctime(job["not_before"]) if job["not_before"] else None,
            "group_list": job["groups"],
            "Hold_Types": held(job),
            "Join_Path": job["join"],
            "Keep_Files": job["keep"] or "n",
            "Mail_Points": job["mail"],
            "Mail_Users": job["mail_users"],
            "mtime": time.ctime(job["mtime"]),
            "Output_Path": _path(job, "o"),
            "Priority": str(job["priority"]),
            "qtime": time.ctime(job["qtime"]),
            "Rerunable": str(job["rerunnable"]),
            "Remove_Files": job["remove"],
            "Resource_List": job["asked"]["listing"],
            "Shell_Path_List": job["shell"],
            "stime": time.ctime(started) if started else None,
            "session_id": str(job["session"]) if job.get("session") else None,
            "jobdir": job["home"] if started else None,
            "block": "True" if job["block"] else None,
            "umask": job["umask"],
            "substate": str(_substate(job)),
            "Variable_List": job["variables"],
            "comment": job.get("comment"),
            "etime": time.ctime(job["qtime"]) if job["state"] not in "HW" else None,
            "run_count": str(job["run_count"]) if job.get("run_count") else None,
            "array": "True" if job["array"] else None,
            "array_indices_submitted": _range(job["array"]) if job["array"] else None,
            "array_id": f"{job['seq']}[].{job['server']}" if job["index"] is not None else None,
            "array_index": str(job["index"]) if job["index"] is not None else None,
            "Exit_status": str(job["exit_status"]) if job.get("exit_status") is not None else None,
            "Submit_arguments": shlex.join(job["arguments"]),
            "executable": shlex.join(job["command"]) if job["command"] else None,
            "history_timestamp": str(int(job["obittime"])) if job["state"] == "F" else None,
            "obittime": time.ctime(job["obittime"]) if job["state"] == "F" else None,
            "project": job["project"],
            "Submit_Host": job["server"],
        }.items()
        if value not in (None, "", {})
    }


def used_so_far(job, now):
    """Return the resources that a running job has used until `now`, or {} for other jobs."""
    if job["state"] not in "RE":
        return {}
    of_job = processes.carrying(f"PBS_JOBCOOKIE={job['cookie']}")
    space, resident = processes.memory(of_job)
    return resources_used(job, processes.cpu_seconds(of_job), now - job["stime"], resident, space)


def resources_used(job, cpu, seconds, resident, space=0):
    """Return the resources that a job has used, from CPU seconds, elapsed seconds, and bytes of resident memory and of
    address space. The latter is 0 for a job that has ended, as in a real PBS for jobs that end before they are
    polled."""
    return {
        "cpupercent": str(round(100 * cpu / max(0.01, seconds))),
        "cput": format_time(cpu),
        "mem": f"{resident >> 10}kb",
        "ncpus": job["asked"]["listing"].get("ncpus", "1") if job else "0",
        "vmem": f"{space >> 10}kb",
        "walltime": format_time(seconds),
    }


def held(job):
    """Return Hold_Types: u for the user's hold, s for the system's (it waits for another job), n for none."""
    waits = job["state"] == "H" and job["depend"]
    return (job["hold"].replace("n", "") + ("s" if waits else "")) or "n"


def _path(job, stream):
    return f"{job['server']}:{delivery.destination(job, stream)}"


def _condition(job, kind, names):
    if kind == "on":
        return f"on:{names}"
    return ":".join([kind, *(f"{name}.{job['server']}@{job['server']}" for name in names)])


def _range(array):
    return f"{array['first']}-{array['last']}" + (f":{array['step']}" if array["step"] > 1 else "")


def _substate(job):
    if job["state"] != "F":
        return SUBSTATES[job["state"]]
    return 91 if job.get("exit_status") is None or job.get("delete") else 93 if job["exit_status"] else 92
