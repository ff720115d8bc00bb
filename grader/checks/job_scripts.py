"""The checks of the job scripts: their #PBS lines are read as the course's qsub reads them, and compared with the site. No script is
run here."""

import re

from grader.checks.check import Check, Criterion
from handson.cluster import site
from handson.pbs import directives, resources
from handson.pbs.errors import PBSError
from handson.pbs.options import Options, split

LOOKS_LIKE_ONE = re.compile(r"\s*#\s*PBS\s*-\w", re.IGNORECASE)
KEYS = {"queue": r"-q\b", "select": "select|nodes=|ncpus|ngpus|mpiprocs|ppn", "place": "place", "group": r"-W|-A\b|group", "walltime": "time"}
SHORTEST = 60  # seconds that a training needs at least


def requests(text, case):
    """What a job script asks for, a dictionary:

    "queue", "select", "place", "group", "walltime": each a text, or None if no line asks for it
    "problems": the same names -> a sentence on what is wrong with the line
    "ranks": the number of ranks that its mpiexec starts; None if that follows from the node file
    "mpiexec": whether the script calls it
    "site": the chosen Site
    """
    found = dict.fromkeys(KEYS) | {"problems": {}, "site": site.read(site.chosen())}
    commands = False
    for line in text.splitlines():
        if not LOOKS_LIKE_ONE.match(line):
            commands = commands or bool(line.strip()) and not line.startswith("#")
            continue
        values, problem = _directive(line, commands)
        if problem:
            found["problems"].setdefault(next((key for key, pattern in KEYS.items() if re.search(pattern, line)), None), problem)
        found |= values
    ranks = re.search(r"^[ \t]*mpiexec\b.*?\s-n[ \t]*(\d{1,9})\b", text, re.MULTILINE)
    return found | {"ranks": ranks and int(ranks[1]), "mpiexec": bool(re.search(r"^[ \t]*mpiexec\b", text, re.MULTILINE))}


def _directive(line, commands):
    """({name: what the line asks for}, with the names of `requests`; a sentence on what is wrong with the line, or None)."""
    shown = f"`{line.strip()}`"
    if not line.startswith("#PBS "):
        return {}, f"{shown} is a comment to PBS: a directive begins with `#PBS`, in capitals, at the very start of the line"
    if commands:
        return {}, f"{shown} stands below the first command: PBS reads no directives there any more"
    if "(" in line:
        return {}, f"{shown} is still to be filled in"
    options = Options()
    try:
        [words] = directives.read(line.encode())
        given, others, _ = split(words)
        options.add(given)
    except PBSError as error:
        return {}, f"{shown}: qsub says: {str(error).strip()}"
    asked, problem = options.resources, None
    if others:
        problem = f"{shown}: there is a space before `{others[0]}`; a request has none inside"
    elif "nodes" in asked or {"ppn", "ncpus", "ngpus", "mpiprocs"} & asked.keys():
        problem = f"{shown} is Torque's way to say it: PBS Professional wants one `select=nodes:ngpus=...:mpiprocs=...:ompthreads=...`"
    elif len(asked) > 1:
        problem = f"{shown} has two requests with a comma between: not every batch system reads that; give each a line `#PBS -l` of its own"
    values = {"queue": options.values.get("q"), "group": options.attributes.get("group_list")}
    values |= {key: asked.get(key) for key in ("select", "place", "walltime")}
    return {key: value for key, value in values.items() if value is not None}, problem


def _missing(seen, key, wanted):
    """A sentence if the line for `key` is missing or can't be read; None if its value can be judged."""
    return seen["problems"].get(key) or (f"no line asks for it: `{wanted}`" if seen[key] is None else None)


def _chunks(seen):
    """(the chunks of the select statement, None), or (None, a sentence that says why there are none)."""
    if problem := _missing(seen, "select", "#PBS -l select=..."):
        return None, problem
    try:
        return resources.parse_select(seen["select"]), None
    except PBSError as error:
        return None, f"`select={seen['select']}`: qsub says: {str(error).strip()}"


def right_queue(seen, case, expected):
    right = seen[0]["site"].queue
    if problem := _missing(seen[0], "queue", f"#PBS -q {right}"):
        return problem
    return None if seen[0]["queue"] == right else f"the queue `{seen[0]['queue']}` is not the one for this course here: that is `{right}`"


def right_nodes(seen, case, expected):
    chunks, problem = _chunks(seen[0])
    if problem:
        return problem
    nodes, wanted = sum(chunk["count"] for chunk in chunks), case["nodes"]
    if nodes == wanted:
        return None
    if nodes == 1:
        return f"it asks for one node: `select` counts nodes, and here are {wanted} wanted"
    if nodes == wanted * case["processes"]:
        return f"it asks for {nodes} chunks, one for each process: `select` counts nodes, and mpiprocs the processes of each"
    return f"it asks for {nodes} nodes; {wanted} {'is' if wanted == 1 else 'are'} wanted"


def right_gpus(seen, case, expected):
    chunks, problem = _chunks(seen[0])
    if problem:
        return problem
    wanted = case["processes"] if seen[0]["site"].gpus else 0
    for chunk in chunks:
        if (gpus := chunk.get("ngpus", 0)) != wanted:
            if not wanted:
                return "this site has no GPUs to ask for: leave ngpus out"
            if not gpus:
                return f"no GPUs are asked for: `ngpus={wanted}` in each node"
            return f"each node is asked for {gpus} GPU{'s' * (gpus > 1)}; ngpus counts those of one node, of which {wanted} {'are' if wanted > 1 else 'is'} wanted"
    return None


def right_processes(seen, case, expected):
    chunks, problem = _chunks(seen[0])
    if problem:
        return problem
    total, ranks = sum(chunk["count"] * chunk.get("mpiprocs", 1) for chunk in chunks), seen[0]["ranks"]
    if ranks and ranks != total:
        return f"nodes times mpiprocs are {total} MPI processes, but mpiexec starts {ranks} (-n {ranks})"
    for chunk in chunks:
        if (processes := chunk.get("mpiprocs", 1)) != case["processes"]:
            starts = f", so mpiexec starts {total} on all nodes" * seen[0]["mpiexec"]
            return f"a node has {processes} process{'es' * (processes > 1)} (mpiprocs){starts}; {case['processes']} wanted, one for each GPU"
    return None


def right_threads(seen, case, expected):
    chunks, problem = _chunks(seen[0])
    if problem:
        return problem
    for chunk in chunks:
        if "ompthreads" not in chunk:
            return "the number of threads is left open (ompthreads): each process then starts one for each core, and they get in each other's way"
        if chunk["ompthreads"] != 1:
            return f"each process gets {chunk['ompthreads']} threads (ompthreads); one is wanted"
    return None


def scattered(seen, case, expected):
    if problem := _missing(seen[0], "place", "#PBS -l place=scatter"):
        return problem
    arrangement = seen[0]["place"].split(":")[0]
    if arrangement in ("pack", "free"):
        return f"`place={arrangement}` {'puts all chunks' if arrangement == 'pack' else 'lets PBS put both chunks'} on one node"
    return None if arrangement == "scatter" else f"PBS knows no `place={seen[0]['place']}`"


def right_group(seen, case, expected):
    right = seen[0]["site"].group
    if right is None:
        return None if seen[0]["group"] is None else "this site has no groups: leave the line `-W group_list` out"
    if problem := _missing(seen[0], "group", f"#PBS -W group_list={right}"):
        return problem
    return None if seen[0]["group"] == right else f"the group `{seen[0]['group']}` is not the one of this course here: that is `{right}`"


def right_walltime(seen, case, expected):
    if problem := _missing(seen[0], "walltime", "#PBS -l walltime=00:10:00"):
        return problem
    try:
        seconds = resources.parse_time(seen[0]["walltime"])
    except ValueError:
        return f"`walltime={seen[0]['walltime']}` is no time: write hours, minutes and seconds, as in 00:10:00"
    if seconds < SHORTEST:
        return f"`walltime={seen[0]['walltime']}` is {seconds} seconds, and the job is killed then: write hours, minutes and seconds, as in 00:10:00"
    longest = seen[0]["site"].walltime
    if longest and seconds > resources.parse_time(longest):
        return f"`walltime={seen[0]['walltime']}` is longer than the queue allows: {longest}"
    return None


def checks(nodes, processes):
    """The checks of a job script for `nodes` nodes, with `processes` processes on each node and a GPU for each process."""
    scatter = (Criterion("a node for each chunk", 0.5, scattered, "`-l place=` says where chunks may go: pack, free or scatter."),)
    check = Check(
        "resources",
        requests,
        ({"nodes": nodes, "processes": processes},),
        (
            Criterion("the queue", 0.5, right_queue, "`python -m handson site show` tells this site's queue, group and longest time."),
            Criterion("the nodes", 0.5, right_nodes, "`-l select=` begins with the number of nodes."),
            Criterion("the GPUs of each node", 0.5, right_gpus, "Everything behind select's number is for each node: `:ngpus=`."),
            Criterion("the processes of each node", 0.5, right_processes, "`:mpiprocs=` is the number of MPI processes on each node."),
            Criterion("the threads of each process", 0.5, right_threads, "`:ompthreads=` is the number of threads of each process."),
            *(scatter if nodes > 1 else ()),
            Criterion("the group", 0.5, right_group, "`-W group_list=`; `python -m handson site show` tells the group."),
            Criterion("the time limit", 0.5, right_walltime, "`-l walltime=` with hours, minutes and seconds: 00:10:00."),
        ),
    )
    return (check,)
