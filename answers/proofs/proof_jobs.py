"""Known answers to the gaps of job scripts, submitted: a right one gets the nodes, processes, GPUs, threads and time
that it should.

Each job trains for an epoch of small images by the embedded qsub. Its time limit must
suffice for a run as students submit it, which is measured here, and must not exceed the solution's.
"""

import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from answers.proofs import entries
from grader.exercises import solved
from handson.pbs.resources import parse_size, parse_time
from handson.training.results import ResultError, read
from tests.bench.runs import LIMIT, ROOT

SHORT = "--size 32 --epoch 1"
GAP = "resources"
TAKEN = ("kb of memory", "s of CPU time")
# seconds from a job's end until its output must be there, unless a script asks for it to be kept or removed
DELIVERY = 10
LOOK = '\ncp "$PBS_NODEFILE" nodefile\necho "$OMP_NUM_THREADS" >threads\n'  # added to a script's end


def measure(folder):
    """Rows (what, value, target)."""
    _begin(folder)
    for unit in scripts():
        given = wanted(unit, folder)
        for kind, answers in zip(("wrong", "right"), entries(unit)):
            answers = [one for one in answers if one["gap"] == GAP]
            shown = [
                one
                for one in answers
                if bool(difference(given, submit(unit, one["code"], folder))) == (kind == "wrong")
            ]
            yield (
                f"{unit}: {kind} job scripts that get {'something else' if kind == 'wrong' else 'what they should'}",
                len(shown),
                len(answers),
            )
            yield from ((f"    not shown: {one['name']}", "", "") for one in answers if one not in shown)


def _begin(folder):
    """Have a PBS of its own, as the local one, but for jobs that name no queue: the lecture's is not the first."""
    site = (ROOT / "jobs/sites/local.toml").read_text().replace('queue = "lecture"', 'queue = ["others", "lecture"]')
    (folder / "site.toml").write_text(site)
    os.environ |= {"HANDSON_PBS_HOME": str(folder / "pbs"), "HANDSON_SITE": str(folder / "site.toml")}


def scripts():
    """unit -> its job script, a path below exercises."""
    found = sorted(ROOT.glob("solutions/*/run_*_training.sh"))
    return {path.parent.name[3:]: f"exercises/{path.parent.name}/{path.name}" for path in found}


def wanted(unit, folder):
    """What the solution's job gets, and `seconds`: how long it runs with the options of a student, who gives none."""
    return submit(unit, None, folder) | {"seconds": submit(unit, None, folder, "")["ran"]}


def difference(right, found):
    """None where a job gets what the solution's job does, or a sentence with what it gets in its place."""
    for name, value in found.items():
        if name == "walltime" and not right["seconds"] < (value or 0) <= right["walltime"]:
            return (
                f"its time limit is {value} seconds; a run takes {right['seconds']:.0f}, and {right['walltime']} are"
                " meant"
            )
        if name in TAKEN and value[0] is not None and value[0] < right[name][1]:
            return f"it may take {value[0]} {name}; a run takes {right[name][1]}"
        if name not in ("walltime", "ran", *TAKEN) and value != right.get(name):
            return f"{name}: {value}" + (f", not {right[name]}" if name in right else "")
    return None


def submit(unit, code, folder, options=SHORT):
    """What a job gets, name -> value, or, alone, what qsub or PBS says to it. code: of the gap; None for the
    solution's."""
    file = Path(scripts()[unit])
    place = Path(tempfile.mkdtemp(dir=folder, prefix=unit))
    shutil.copytree(
        ROOT / "solutions" / file.parent.name, place, ignore=shutil.ignore_patterns("results"), dirs_exist_ok=True
    )
    (place / file.name).write_text(solved(str(file), **({} if code is None else {GAP: code})) + LOOK)
    done = _run(place, "qsub", "-v", f"OPTIONS={options} -o out", "-j", "oe", "-o", "job.out", file.name)
    if done.returncode:
        return {"qsub refuses it": done.stderr.strip().splitlines()[0]}
    job = done.stdout.strip()
    facts = _end(place, job)
    if facts["job_state"] == "B":
        _run(place, "qdel", job)
        return {"it is an array of jobs": facts["array_indices_submitted"]}
    if facts["job_state"] != "F":
        _run(place, "qdel", job)
        return {"it never runs": facts.get("comment", f"state {facts['job_state']}")}
    if not (place / "nodefile").exists():
        told = (place / "job.out").read_text().splitlines() if (place / "job.out").exists() else []
        return {"it is ended": told[-1] if told else "without a word"}
    chunks, place_asked = facts["exec_vnode"].count("("), facts["Resource_List.place"]
    nodes = collections.Counter((place / "nodefile").read_text().split())
    return {
        "queue": facts["queue"],
        "group": facts.get("group_list"),
        "processes of the nodes": list(nodes.values()),
        "GPUs of the nodes": [sum(map(int, re.findall(r"ngpus=(\d+)", part))) for part in _vnodes(facts["exec_vnode"])],
        "has a core": facts.get("Resource_List.ncpus") != "0",
        "nodes at most": 1 if "pack" in place_asked else chunks,
        "nodes at least": chunks if "scatter" in place_asked else 1,
        "kb of memory": _taken(facts, "mem", parse_size),
        "s of CPU time": _taken(facts, "cput", parse_time),
        "threads of a process": int((place / "threads").read_text()),
        "ranks that trained": _workers(place / "out"),
        "walltime": parse_time(facts["Resource_List.walltime"]) if "Resource_List.walltime" in facts else None,
        "ran": parse_time(facts["resources_used.walltime"]),
    }


def _end(place, job):
    """The facts that qstat shows of a job, when it has ended, can never run, is an array of jobs, or waits until
    somebody releases it or for a date."""
    end, delivery = time.monotonic() + LIMIT, None
    while time.monotonic() < end:
        shown = _run(place, "qstat", "-xf", job).stdout.replace("\n\t", "")
        facts = dict(re.findall(r"^ +([\w.]+) = (.*)$", shown, re.MULTILINE))
        if facts["job_state"] == "F":
            delivery = delivery or time.monotonic() + DELIVERY
            if (place / "job.out").exists() or time.monotonic() > delivery:
                return facts
        if facts["job_state"] in "HWB" or facts.get("comment", "").startswith("Can Never Run"):
            return facts
        time.sleep(0.3)
    sys.exit(f"the job {job} in {place} has not ended after {LIMIT} seconds")


def _vnodes(text):
    """The parts of an exec_vnode, put together by node."""
    by_node = collections.defaultdict(str)
    for name, rest in re.findall(r"\(?(\w+):([^+)]*)", text):
        by_node[name] += f":{rest}"
    return list(by_node.values())


def _workers(out):
    try:
        return read(out).workers
    except ResultError as error:
        return str(error)


def _taken(facts, name, read):
    """(what a job may take of a resource, None for any; what it has taken)"""
    limit = facts.get(f"Resource_List.{name}")
    return limit and read(limit), read(facts[f"resources_used.{name}"])


def _run(place, *words):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, timeout=LIMIT)
