"""The checks of the job scripts: their #PBS lines are read as the site's batch system reads them, and compared with the site. No script is
run here. Where the batch system is PBS, what qsub accepts is right, however it is written; Slurm's sbatch reads some of it differently."""

import re

from grader.checks.check import Check, Criterion
from handson.cluster import site
from handson.pbs import directives, resources
from handson.pbs.errors import PBSError
from handson.pbs.options import Options, split

LOOKS_LIKE_ONE = re.compile(r"\s*#+\s*(PBS|SBATCH)(\s*-\S|\s+[a-z]\s)", re.IGNORECASE)
KEYS = {"queue": "-q", "select": "select|nodes=|ncpus|ngpus|mpiprocs|ppn|mem=", "place": "place", "group": "-W|-A|group|account", "walltime": "time"}
SHORTEST = 60  # seconds that a training needs at least
FIRST = ("select", "place", "walltime")  # of several lines that ask for one of these, PBS takes the first, and sbatch the last
UP_TO_A_COLON = re.compile(r"\b(select|ncpus|mpiprocs)=([^:]*)")  # numbers that sbatch reads up to the next colon
ONE_EACH = "give each request a line `#PBS -l` of its own"


def _wanted(seen, case):
    """(nodes, processes on each): 1 of a case stands for one, more stand for as many as the site's exercises use."""
    here = seen["site"]
    return here.exercise_nodes if case["nodes"] > 1 else 1, here.exercise_gpus if case["processes"] > 1 else 1


def requests(text, case):
    """What a job script asks for, a dictionary:

    "queue", "select", "place", "group", "walltime": each a text, or None if no line asks for it
    "problems": the same names -> a sentence on why qsub refuses a line
    "ignored": the same names -> a sentence on why nobody reads a line, which counts only if no other line asks for it
    "ranks": the number of ranks that its mpiexec starts; None if that follows from the node file
    "mpiexec": whether the script calls it
    "site": the Site that the case names, or the chosen one
    """
    here = site.read(case.get("site") or site.chosen())
    found = dict.fromkeys(KEYS) | {"problems": {}, "ignored": {}, "site": here}
    commands = False
    for line in text.splitlines():
        if not LOOKS_LIKE_ONE.match(line):
            commands = commands or bool(line.strip()) and not line.startswith("#")
            continue
        values, problem, ignored = _directive(line, commands, here.batch == "slurm")
        found |= values if here.batch == "slurm" else {key: value for key, value in values.items() if found[key] is None or key not in FIRST}
        about = [key for key, pattern in KEYS.items() if re.search(pattern, line)] or ["select" if "-l" in line else "queue"]
        for name, sentence in (("problems", problem), ("ignored", ignored)):
            found[name] = (dict.fromkeys(about, sentence) if sentence else {}) | found[name]
    ranks = re.search(r"^[ \t]*mpiexec\b.*?\s-n[ \t]*(\d{1,9})\b", text, re.MULTILINE)
    return found | {"ranks": ranks and int(ranks[1]), "mpiexec": bool(re.search(r"^[ \t]*mpiexec\b", text, re.MULTILINE))}


def _directive(line, commands, slurm):
    """({name: what the line asks for}, with the names of `requests`; a sentence if qsub refuses it; a sentence if it is not read)."""
    shown = f"`{line.strip()}`"
    if problem := _is_no_directive(line):
        return {}, None, f"{shown} {problem}"
    if commands and not slurm:
        return {}, None, f"{shown} stands below the first command: PBS reads no directives there any more"
    if "(" in line:
        return {}, f"{shown} is still to be filled in", None
    options = Options()
    try:
        [words] = directives.read((re.sub(r"\s#.*", "", line) if slurm else line).encode())
        given, others, _ = split(words)
        if others:
            return {}, f"{shown}: {_left_over(others[0])}", None
        if group := next((value for letter, value in given if letter == "W" and re.match(r"\s*(?!group_list=)\w*group\w*=", value)), None):
            return {}, f"{shown}: there is no attribute `{group.partition('=')[0].strip()}`; the group is `-W group_list=`", None
        options.add(given)
    except PBSError as error:
        return {}, f"{shown}: qsub says: {' '.join(str(error).split())}", None
    asked = options.resources
    if "nodes" in asked and "select" not in asked and not slurm:
        asked |= _as_select(asked["nodes"])
    account = options.values.get("A")
    values = {"queue": options.values.get("q"), "group": options.attributes.get("group_list") or (account if slurm else None)}
    values |= {key: asked.get(key) for key in ("select", "place", "walltime")}
    problem = (_sbatch_misreads(given) if slurm else None) or _is_no_request(asked)
    bookkeeping = f"{shown} names an account, which is only for bookkeeping: the group is `#PBS -W group_list={account}`"
    return (
        {key: value for key, value in values.items() if value is not None},
        f"{shown} {problem}" if problem else None,
        bookkeeping if account and not slurm else None,
    )


def _is_no_directive(line):
    """Why no batch system reads the line as a directive of a job script for qsub, or None."""
    if re.match(r"\s*#+\s*SBATCH", line, re.IGNORECASE):
        return "is a line for Slurm's sbatch; in a script for qsub, a directive begins with `#PBS`"
    if line.lstrip().startswith("##"):
        return "is a comment to PBS: the second # switches it off"
    if letter := re.match(r"#PBS\s+([a-zA-Z])\s", line):
        return f"asks for nothing: an option begins with a hyphen, `-{letter[1]}`"
    if not re.match(r"#PBS\s", line):
        return "is a comment to PBS: a directive begins with `#PBS`, in capitals, at the very start of the line, and a space"
    return None


def _left_over(word):
    """What is wrong with a directive that has a word behind its options."""
    if word.startswith("#"):
        return "a directive can't have a comment behind it"
    return f"there is a space before `{word}`; a request has none inside"


def _is_no_request(asked):
    """What is wrong with the requests {name: value} of a directive, to be put behind the line; None if nothing is."""
    of_node = [name for name in asked if name in resources.CHUNK]
    if "group_list" in asked:
        return f"asks for a resource of that name, and there is none: the group is an attribute, `#PBS -W group_list={asked['group_list']}`"
    if {"nodes", "ppn", "ncpus", "ngpus", "mpiprocs"} & asked.keys() and "select" not in asked:
        return "is Torque's way to say it: PBS Professional wants one `select=nodes:ngpus=...:mpiprocs=...:ompthreads=...`"
    if of_node and "select" in asked:
        return f"has a comma before `{of_node[0]}=`, which begins a new request: inside of select, colons separate"
    if of_node:
        return f"asks for it beside `select`, and qsub refuses that: write `:{of_node[0]}={asked[of_node[0]]}` into select"
    if unknown := [name for name in asked if name not in resources.JOB]:
        return f"asks for a resource `{unknown[0]}`, which PBS does not know"
    return None


def _as_select(nodes):
    """The requests `select` and `place` that PBS makes of the older ``nodes=1:ppn=2:ngpus=2:ompthreads=1``; {} if it leaves something open."""
    try:
        select, place = resources.parse_nodes(nodes)
        complete = all({"ngpus", "mpiprocs", "ompthreads"} <= chunk.keys() for chunk in resources.parse_select(select))
    except PBSError:
        return {}
    return {"select": select, "place": place} if complete else {}


def _sbatch_misreads(given):
    """How Slurm's sbatch reads the -l options [(letter, value), ...] differently from PBS, to be put behind the line; None if it doesn't.

    Tried with Slurm 22.05.
    """
    for text in (value for letter, value in given if letter == "l"):
        for name, number in UP_TO_A_COLON.findall(text):
            if not number.isdigit():
                how = ONE_EACH if "," in number else "begin select with the number of nodes, once"
                return f"can't be read by Slurm: it takes all up to the next colon for the number of `{name}=`, here `{number}`; {how}"
        if re.search(r"\bselect=[^,]*\+", text):
            return "asks Slurm only for what stands before the +: `select=` with the number of nodes asks for all of them"
        if minutes := re.search(r"\bwalltime=(\d+)(,|$)", text):
            return f"asks Slurm for {minutes[1]} minutes, not seconds: write hours, minutes and seconds, as in 00:10:00"
    return None


def _missing(seen, key, wanted):
    """A sentence if the line for `key` is missing or can't be read; None if its value can be judged."""
    return seen["problems"].get(key) or (seen["ignored"].get(key, f"no line asks for it: `{wanted}`") if seen[key] is None else None)


def _chunks(seen, case):
    """(the chunks of the select statement, None), or (None, a sentence that says why there are none). Where one node is wanted, chunks that
    are packed onto one node count as one chunk."""
    if problem := _missing(seen, "select", "#PBS -l select=..."):
        return None, problem
    try:
        chunks = resources.parse_select(seen["select"])
    except PBSError as error:
        return None, f"`select={seen['select']}`: qsub says: {str(error).strip()}"
    packed = case["nodes"] == 1 and re.fullmatch("(.*:)?pack(:.*)?", seen["place"] or "")
    return [_together(chunks)] if packed else chunks, None


def _together(chunks):
    """The sum of chunks that are placed on one node."""
    names = {name for chunk in chunks for name in chunk if name in resources.SUMMED}
    summed = {name: sum(chunk["count"] * chunk.get(name, 0) for chunk in chunks) for name in names}
    processes = sum(chunk["count"] * chunk.get("mpiprocs", 1) for chunk in chunks)
    threads = [chunk["ompthreads"] for chunk in chunks if "ompthreads" in chunk]
    return {"count": 1, **summed, "mpiprocs": processes, **({"ompthreads": max(threads)} if len(threads) == len(chunks) else {})}


def right_queue(seen, case, expected):
    right = seen[0]["site"].queue
    if problem := _missing(seen[0], "queue", f"#PBS -q {right}"):
        return problem
    return None if seen[0]["queue"] == right else f"the queue `{seen[0]['queue']}` is not the one for this course here: that is `{right}`"


def right_nodes(seen, case, expected):
    chunks, problem = _chunks(seen[0], case)
    if problem:
        return problem
    nodes, (wanted, processes) = sum(chunk["count"] for chunk in chunks), _wanted(seen[0], case)
    if wanted == 1 and seen[0]["place"] and (problem := _unknown_place(seen[0]["place"])):
        return problem  # where more nodes are wanted, the criterion `scattered` says so
    if nodes == wanted:
        return _waits_for_ever(chunks, seen[0]["site"])
    if nodes == 1:
        return f"it asks for one node: `select` counts nodes, and here are {wanted} wanted"
    if nodes == wanted * processes:
        return f"it asks for {nodes} chunks, one for each process: `select` counts nodes, and mpiprocs the processes of each"
    return f"it asks for {nodes} nodes; {wanted} {'is' if wanted == 1 else 'are'} wanted"


def _waits_for_ever(chunks, here):
    """A sentence if a chunk asks for more cores or memory than any node of the site has, else None."""
    for chunk in chunks:
        if chunk["ncpus"] > here.ncpus:
            return f"the job would wait for ever: each node is asked for {chunk['ncpus']} cores (ncpus), and the nodes here have {here.ncpus}"
        if here.mem and chunk.get("mem", 0) > here.mem:
            return f"the job would wait for ever: each node is asked for more memory (mem) than the nodes here have, {here.mem >> 10} MB"
    return None


def right_gpus(seen, case, expected):
    chunks, problem = _chunks(seen[0], case)
    if problem:
        return problem
    wanted = _wanted(seen[0], case)[1] if seen[0]["site"].gpus else 0
    for chunk in chunks:
        if (gpus := chunk.get("ngpus", 0)) != wanted:
            if not wanted:
                return "this site has no GPUs to ask for: leave ngpus out"
            if not gpus:
                return f"no GPUs are asked for: `ngpus={wanted}` in each node"
            return f"each node is asked for {gpus} GPU{'s' * (gpus > 1)}; ngpus counts those of one node, of which {wanted} {'are' if wanted > 1 else 'is'} wanted"
    return None


def right_processes(seen, case, expected):
    chunks, problem = _chunks(seen[0], case)
    if problem:
        return problem
    wanted = _wanted(seen[0], case)[1]
    total, ranks = sum(chunk["count"] * chunk.get("mpiprocs", 1) for chunk in chunks), seen[0]["ranks"]
    if ranks and ranks != total:
        return f"nodes times mpiprocs are {total} MPI processes, but mpiexec starts {ranks} (-n {ranks})"
    for chunk in chunks:
        if (processes := chunk.get("mpiprocs", 1)) != wanted:
            starts = f", so mpiexec starts {total} on all nodes" * seen[0]["mpiexec"]
            return f"a node has {processes} process{'es' * (processes > 1)} (mpiprocs){starts}; {wanted} wanted{', one for each GPU' * bool(seen[0]['site'].gpus)}"
    return None


def right_threads(seen, case, expected):
    chunks, problem = _chunks(seen[0], case)
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
    if problem := _unknown_place(seen[0]["place"]):
        return problem
    arrangement, _ = resources.parse_place(seen[0]["place"])
    if arrangement == "scatter":
        return None
    return f"`place={arrangement}` {'puts all chunks' if arrangement == 'pack' else 'lets PBS put both chunks'} on one node"


def _unknown_place(place):
    """A sentence if qsub refuses this placement, else None."""
    try:
        resources.parse_place(place)
    except PBSError:
        return f"PBS knows no `place={place}`"
    return None


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
    """The checks of a job script for `nodes` nodes, with `processes` processes on each node and a GPU for each process. More than one stands
    for as many as the site's exercises use."""
    scatter = (Criterion("a node for each chunk", 0.5, scattered, "`-l place=` says where chunks may go: pack, free or scatter."),)
    check = Check(
        "resources",
        requests,
        ({"nodes": nodes, "processes": processes},),
        (
            Criterion("the queue", 0.5, right_queue, "`python -m handson site show` tells this site's queue, group and longest time."),
            Criterion("the nodes", 0.5, right_nodes, "`-l select=` begins with the number of nodes. Every batch system reads one request a line."),
            Criterion("the GPUs of each node", 0.5, right_gpus, "Everything behind select's number is for each node: `:ngpus=`."),
            Criterion("the processes of each node", 0.5, right_processes, "`:mpiprocs=` is the number of MPI processes on each node."),
            Criterion("the threads of each process", 0.5, right_threads, "`:ompthreads=` is the number of threads of each process."),
            *(scatter if nodes > 1 else ()),
            Criterion("the group", 0.5, right_group, "`-W group_list=`; `python -m handson site show` tells the group."),
            Criterion("the time limit", 0.5, right_walltime, "`-l walltime=` with hours, minutes and seconds: 00:10:00."),
        ),
    )
    return (check,)
