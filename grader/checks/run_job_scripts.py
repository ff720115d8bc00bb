"""The checks of the job scripts. A probe runs the script as a job (grader/probes/simulated_job.py). Any script that
PBS's qsub accepts is right if the job then trains; Slurm's sbatch interprets some options differently."""

import re
import shlex
from types import SimpleNamespace

from grader.checks.check import Check, Criterion
from handson.cluster import site
from handson.pbs import qsub, resources
from handson.pbs.command_options import Options, split, variable_list
from handson.pbs.pbs_errors import PBSError

REQUESTS = {  # (which options concern it, rightly or not; how it is written at a site)
    "queue": ("-q|q |--partition", "-q {0.queue}"),
    "select": ("-?l.*(select|nodes=|ncpus|ngpus|mpiprocs|ppn|mem=)|--(nodes|ntasks|gpus)", "-l select=..."),
    "place": ("-?l.*place", "-l place=scatter"),
    "group": ("-?W.*group|-?l.*group_list|-A|--account", "-W group_list={0.group}"),
    "walltime": ("-?l.*time|--time", "-l walltime=00:10:00"),
}
HINTS = {
    "queue": "`python -m handson site show` prints this site's queue, group and longest time.",
    "nodes": (
        "`-l select=` starts with the number of nodes. Write one request per line, which every batch system reads."
    ),
    "gpus": "All resources after the number in `select` are per node: `:ngpus=`.",
    "processes": "`:mpiprocs=` is the number of MPI processes on each node.",
    "threads": "`:ompthreads=` is the number of threads of each process.",
    "node_per_chunk": "`-l place=` sets where chunks may go: pack, free or scatter.",
    "group": "`-W group_list=` names the group, which `python -m handson site show` prints.",
    "time_limit": "`-l walltime=` takes hours, minutes and seconds: 00:10:00.",
}
HARMLESS = {  # options, attributes and resources; with others, a job may wait, run many times, or run for another user
    *(f"-{letter}" for letter in "qlWNjoemMVvrAkRPpczf"),
    *("group_list", "umask", "block", "project", "accounting_id", "select", "nodes", "place", "walltime"),
    *("count", "ncpus", "ngpus", "mpiprocs", "ompthreads", "mem"),
}
ONLY_EMBEDDED = {"network", "gpu_memory"}
SHELL = "(/usr(/local)?)?/bin/(ba|z|k|da)?sh"  # shells that can run the given commands
SHORTEST = 60  # seconds that training needs at least
LEAST_MEMORY, MOST_MEMORY = 100 << 10, 4 << 30  # kB: the need of Python and its libraries, and more than any node has
TIME = "write hours, minutes and seconds, as in 00:10:00"
ODD = (
    r".*[\0-\x08\x0b-\x1f\x7f-\xa0\u2000-\u200f\u2028-\u202f\u3000\ufeff]",
    (
        " has a character other than letters, digits, punctuation and plain spaces, as text copied from a page may"
        " have: type the line again"
    ),
)
UNREAD = (  # a line, and why it is not read
    ODD,
    (r"\s*#+\s*SBATCH", " is a line for Slurm's sbatch: in a script for qsub, a directive starts with `#PBS`"),
    (r"\s*##", " is a comment for PBS: the second # disables it"),
    (r"#PBS\s", " comes after the first command, where PBS reads no directives"),
    (
        "",
        (
            " is a comment for PBS: a directive starts with `#PBS`, in capitals, at the very start of the line, and"
            " then a space"
        ),
    ),
)
UNCLEAR = (  # a directive, and what is wrong with the whole line
    ODD,
    (r".*\(", " still has a gap to fill"),
    (r"#PBS\s+([a-zA-Z])\s", " requests nothing: an option starts with a hyphen, `-{0}`"),
    (r"#PBS\s+--\s", ": a directive cannot be followed by a command"),
)
REFUSED = (  # an option that qsub refuses, and why, in simple words
    ("-W group=", ": the attribute `group` does not exist: write `-W group_list=`"),
    ("-l .*group_list=(.*)", ": no resource has that name: the group is an attribute, `#PBS -W group_list={0}`"),
    (
        r"-l (?!.*select=).*\b(nodes|ncpus|ngpus|mpiprocs)=",
        " is Torque's syntax: PBS Professional needs one `select=nodes:ngpus=...:mpiprocs=...:ompthreads=...`",
    ),
    (
        r"-l .*select=[^,]*,.*?\b(ncpus|ngpus|mpiprocs|ompthreads|mem)=",
        " has a comma before `{0}=`, which starts a new request: use colons inside `select`",
    ),
    (
        "-l (mem|ompthreads)=(.*)",
        (" requests it in addition to `select`, which qsub refuses: write `:{0}={1}` in `select`"),
    ),
    (
        "-l .*select=.*:place=",
        (
            " has a colon before `place=`, which is a request of its own: write it on a separate line, `#PBS -l"
            " place=...`"
        ),
    ),
    ("-l .*walltime=([^,]*)", f": `walltime={{0}}` is not a time: {TIME}"),
)
MISREAD = (  # an option, and how Slurm's sbatch differs from PBS; tried with Slurm 22.05
    (
        r"-l .*\b(select|ncpus|mpiprocs)=(?!\d+(?::|$))([^:]*)",
        " cannot be read by Slurm, which takes everything up to the next colon as the number of `{0}=`, here `{1}`:"
        " start select with the number of nodes, and write each request on a separate line `#PBS -l`",
    ),
    (r"-l .*\bselect=[^,]*\+", " requests from Slurm only the part before the +: use one `select=` with all nodes"),
    (r"-l .*\bwalltime=(\d+)(,|$)", f" requests {{0}} minutes from Slurm, not seconds: {TIME}"),
)


def _sentence(table, text):
    """Return the sentence of the first row that matches, or None."""
    found = next(((row, sentence) for pattern, sentence in table if (row := re.match(pattern, text))), None)
    return found and found[1].format(*found[0].groups())


def _says(error):
    return f": qsub says: {' '.join(str(error).split())}" + f" ({error.hint})" * bool(error.hint)


def _options(line, text):
    """Return ([(letter, value), ...], what is wrong with the whole line or None) of a directive."""
    try:
        given, others, _ = split(shlex.split(text))
    except PBSError as error:
        return [], _says(error)
    except ValueError:
        return [], ": a quotation mark is not closed"
    if problem := _sentence(UNCLEAR, f"{line} "):
        return [], problem
    if others and others[0].startswith("#"):
        return [], ": a directive cannot be followed by a comment"
    return given, f" has a space before `{others[0]}`: write a request without spaces" if others else None


def _added(given):
    options = Options()
    options.add(given)
    return options


def _parsed(asked):
    return resources.parse(asked if "nodes" in asked else {"select": "1"} | asked)


def _refusal(letter, value, above, batch):
    """Return what is wrong with an option, or None: qsub refuses it, or the job may not train with it. above: the -l
    requests of the lines above."""
    words, chunks = f"-{letter} {value}", []
    try:
        option = _added([(letter, value)])
        asked = option.resources
        if letter == "l":
            chunks = _parsed(asked)["chunks"]
        if letter == "v":  # a name without a value may be set in the student's environment
            variable_list(value, dict.fromkeys(re.findall(r"[^\s,=]+", value), ""))
    except PBSError as error:
        return _sentence(REFUSED, words) or _says(error)
    complete = all({"ngpus", "mpiprocs", "ompthreads"} <= chunk.keys() for chunk in chunks)
    if "nodes" in asked and (batch == "slurm" or not complete):
        return _sentence(REFUSED, words)
    names = {f"-{letter}", *option.attributes, *asked, *(name for chunk in chunks for name in chunk)} - HARMLESS
    names -= ONLY_EMBEDDED if batch == "embedded" else set()
    if names and not (letter == "S" and re.fullmatch(SHELL, value)):
        return f" requests `{min(names)}`, which the training does not need and may not run with: leave it out"
    if again := next((name for name in asked if above.get(name, asked[name]) != asked[name]), None):
        return f" requests `{again}=` a second time, and batch systems differ in which line counts: keep one of them"
    return _sentence(MISREAD, words) if batch == "slurm" else None


def _read(lines, batch):
    """Return qsub's interpretation of the lines: the Options that count; {name of REQUESTS: why a line about it does
    not count}; the same for lines that are not read; a sentence on another line that does not count, or None."""
    accepted, problems, unread, other = [], {}, {}, None
    for line, text in lines:
        if batch == "slurm" and re.match(r"#PBS\s", line):  # read below the first command, too, with a comment
            line = re.sub(r"\s#.*", "", line)
            text = line[4:]
        elif batch != "slurm":
            line = line.lstrip(" \t")
        options, problem = ([], _sentence(UNREAD, line)) if text is None else _options(line, text)
        wrong = [(unread if text is None else problems, line, problem)] if problem else []
        for letter, value in [] if problem else options:
            words = f"-{letter} {value}"
            if problem := _refusal(letter, value, _added(accepted).resources, batch):
                wrong.append((problems, words, problem))
                continue
            accepted.append((letter, value))
            if letter == "A" and batch != "slurm":
                account = (
                    f" names an account, which PBS uses only for bookkeeping: the group is `#PBS -W group_list={value}`"
                )
                wrong.append((unread, words, account))
        for where, words, problem in wrong:
            about = [name for name, (pattern, _) in REQUESTS.items() if re.search(rf"(^|\s|PBS)({pattern})", words)]
            for name in about:
                where.setdefault(name, f"`{line.strip()}`{problem}")
            if where is problems and not about:
                other = other or f"`{line.strip()}`{problem}"
    return _added(accepted), problems, unread, other


def _asked(seen, case):
    """Return the requests of a job script:

    "here": the Site
    "values": by the names of REQUESTS
    "problems": by the same names, a sentence on why a line about it does not count
    "job": a sentence on why the job does not train, whatever the criteria judge, or None
    "chunks": of the select statement; if one node is required, chunks that are packed onto one node are one
    "trains": the starts of the program
    """
    here = site.read(case["site"])
    options, problems, unread, job = _read(seen["lines"], here.batch)
    asked, values = options.resources, options.resources | options.attributes
    values["queue"] = options.values.get("q")
    values["group"] = values.get("group_list") or (options.values.get("A") if here.batch == "slurm" else None)
    try:
        chunks = _parsed(asked)["chunks"]
        if "nodes" in asked:  # PBS converts it
            values["select"], values["place"] = resources.parse_nodes(asked["nodes"])
    except PBSError as error:
        chunks, job = [], job or f"the lines contradict each other{_says(error)}"
        problems.setdefault("select", job)
    if chunks and case["nodes"] == 1 and "pack" in values.get("place", "").split(":"):
        chunks = [_together(chunks)]
    values = {name: values[name] for name in REQUESTS if values.get(name)}
    counts = {name for name in unread if name not in values and (name != "group" or here.group)}
    problems = {name: unread[name] for name in counts} | problems
    trains = [run for run in seen["runs"] if run["program"] == case["program"] and not run["help"]]
    job = job or _untrained(trains, seen["last"].strip(), case["program"])
    return SimpleNamespace(here=here, values=values, problems=problems, job=job, chunks=chunks, trains=trains)


def _together(chunks):
    """Return the sum of chunks that are placed on one node."""
    names = {name for chunk in chunks for name in chunk if name in resources.SUMMED}
    summed = {name: sum(chunk["count"] * chunk.get(name, 0) for chunk in chunks) for name in names}
    return chunks[0] | summed | {"count": 1, "mpiprocs": _processes(chunks)}


def _processes(chunks):
    return sum(chunk["count"] * chunk.get("mpiprocs", 1) for chunk in chunks)


def _untrained(trains, last, program):
    """Return a sentence if the commands of a job train nothing, otherwise None. last: the last command."""
    if any(run["left"] for run in trains):
        return (
            f"the script does not wait for the command that starts {program}, because of `&`, so the job ends with"
            " the script: leave out `&`, or end the script with `wait`"
        )
    if any(run["there"] for run in trains):
        return None
    if trains:
        return f"{program} is not found, since a job starts in the home folder: keep the given line `cd`"
    if last.startswith("exit"):
        return f"the script ends at `{last}`, before any command starts {program}"
    return f"no command of the script starts {program}: keep the given lines below the directives"


def right_queue(asked, case):
    queue, right = asked.values["queue"], asked.here.queue
    return None if queue == right else f"the queue `{queue}` is not this course's queue, which is `{right}` here"


def right_nodes(asked, case):
    wanted, processes = case["wanted"]
    nodes = sum(chunk["count"] for chunk in asked.chunks)
    if wanted == 1 and "place" in asked.problems:  # the criterion `node_per_chunk` reports it for several chunks
        return asked.problems["place"]
    if nodes == 1 < wanted:
        return f"the job requests one node, but it needs {wanted}: `select` counts nodes"
    if nodes == wanted * processes != wanted and _processes(asked.chunks) == nodes:
        how = "`select` counts nodes, and mpiprocs counts the processes of each node"
        return f"the job requests {nodes} chunks, one for each process: {how}"
    if nodes != wanted:
        return f"the job requests {nodes} nodes, but {wanted} {'is' if wanted == 1 else 'are'} needed"
    return next(filter(None, (_unfit(chunk, asked.here) for chunk in asked.chunks)), None)


def _unfit(chunk, here):
    """Return a sentence if a chunk requests more cores or memory than a node has, or too little for training; otherwise
    None."""
    cores, memory, most = chunk["ncpus"], chunk.get("mem", LEAST_MEMORY), here.mem or MOST_MEMORY
    if cores == 0:
        return "the job requests no core on each node (ncpus=0), but the training needs one"
    if cores > here.ncpus:
        return f"the job would wait forever, since it requests ncpus={cores}, but each node here has {here.ncpus}"
    if memory > most:
        return (
            f"the job would wait forever, since it requests {memory} kB of memory (mem), but each node here has"
            f" {most} kB"
        )
    if memory < LEAST_MEMORY:
        return (
            f"the training cannot start with {memory} kB of memory (mem): a number without a unit is in bytes, so"
            " write, for example, `1gb`"
        )


def right_gpus(asked, case):
    wanted = case["wanted"][1] if asked.here.gpus else 0
    gpus = next((chunk.get("ngpus", 0) for chunk in asked.chunks if chunk.get("ngpus", 0) != wanted), wanted)
    if gpus == wanted:
        return None
    if not wanted:
        return "this site has no GPUs: leave out ngpus"
    if not gpus:
        return f"the job requests no GPUs: write `ngpus={wanted}` for each node"
    of_node = f"ngpus counts the GPUs of one node, and {wanted} {'are' if wanted > 1 else 'is'} needed"
    return f"the job requests {gpus} GPU{'s' * (gpus > 1)} on each node: {of_node}"


def right_processes(asked, case):
    wanted, total, together, launcher = case["wanted"][1], _processes(asked.chunks), {}, ""
    for run in asked.trains:
        together.setdefault(run["together"], []).append(run)
    for runs in together.values():
        launcher, ranks = runs[0]["by"], sum(run["ranks"] for run in runs)
        alone = f"no mpiexec starts them, so a command runs {case['program']} in one process"
        if ranks != total if launcher else case["nodes"] > 1:
            how = f"{launcher} starts {ranks}" if launcher else alone
            return f"nodes times mpiprocs gives {total} MPI processes, but {how}"
    for processes in (chunk.get("mpiprocs", 1) for chunk in asked.chunks):
        if processes != wanted:
            starts = f", so {launcher} starts {total} on all nodes" * bool(launcher)
            each = ", one for each GPU" * bool(asked.here.gpus)
            return (
                f"a node has {processes} process{'es' * (processes > 1)} (mpiprocs){starts}, but {wanted} are"
                f" needed{each}"
            )
    return None


def right_threads(asked, case):
    for chunk in asked.chunks:
        # by default, PBS gives each chunk one core, and as many threads as cores
        threads = chunk.get("ompthreads", None if asked.here.batch == "slurm" else chunk["ncpus"])
        how = "ompthreads" if "ompthreads" in chunk else "ompthreads, or else ncpus"
        if threads is None:
            return "the number of threads is not set (ompthreads), so Slurm's processes start one thread per core"
        if threads != 1:
            return f"each process gets {threads} threads ({how}), but it needs one"
    for threads in (run["threads"] for run in asked.trains):
        if threads != "1":
            how = f"sets OMP_NUM_THREADS to {threads}" if threads else "removes OMP_NUM_THREADS"
            return f"a command {how}, which overrides ompthreads: use one thread"
    return None


def scattered(asked, case):
    arrangement, _ = resources.parse_place(asked.values["place"])
    how = "puts all chunks" if arrangement == "pack" else "lets PBS put both chunks"
    return None if arrangement == "scatter" else f"`place={arrangement}` {how} on one node"


def right_group(asked, case):
    group, right = asked.values["group"], asked.here.group
    if not right:
        return "this site has no groups: leave out the line `-W group_list`"
    return None if group == right else f"the group `{group}` is not this course's group, which is `{right}` here"


def right_walltime(asked, case):
    text, longest = asked.values["walltime"], asked.here.walltime
    seconds = resources.parse_time(text)
    if seconds < SHORTEST:
        return f"`walltime={text}` is {seconds} seconds, after which the job is killed: {TIME}"
    if longest and seconds > resources.parse_time(longest):
        return f"`walltime={text}` is longer than the queue allows, which is {longest}"
    return None


def _criterion(id, title, request, judge):
    """Return a criterion on one of REQUESTS. judge(asked, case): returns a sentence on what is wrong with it, or
    None."""

    def judged(seen, case, expected):
        if seen[0]["windows"]:
            return f"qsub refuses this script: {qsub.WINDOWS}"
        asked = _asked(seen[0], case)
        if request in asked.problems:
            return asked.problems[request]
        if request in asked.values:
            return judge(asked, case) or asked.job
        if request == "group" and not asked.here.group:
            return asked.job
        return f"no line requests it: `#PBS {REQUESTS[request][1].format(asked.here)}`"

    return Criterion(id, title, 0.5, judged, HINTS[id])


def _given(case):
    here = site.read(case.get("site") or site.chosen())
    nodes, processes = here.exercise_nodes, here.exercise_gpus
    wanted = [nodes if case["nodes"] > 1 else 1, processes if case["processes"] > 1 else 1]
    return {"site": here.name, "batch": here.batch, "wanted": wanted}


def _observed(case):
    texts, truths = ("program", "by", "together", "threads"), ("there", "help", "left")
    run = dict.fromkeys(texts, str) | dict.fromkeys(truths, bool) | {"ranks": int, "run": int}
    return {"lines": [(str, object)], "runs": [run], "last": str, "windows": bool}


def checks(nodes, processes, program):
    """Return the checks of a job script for `nodes` nodes, with `processes` processes per node and a GPU for each
    process. More than one means the number that the site's exercises use. program: the file name of the training
    script."""
    rows = (
        ("queue", "the job uses the right queue", "queue", right_queue),
        ("nodes", "`select` requests the right number of nodes", "select", right_nodes),
        ("gpus", "`ngpus` requests the GPUs of each node", "select", right_gpus),
        ("processes", "`mpiprocs` sets the processes of each node", "select", right_processes),
        ("threads", "`ompthreads` sets one thread per process", "select", right_threads),
        ("node_per_chunk", "`place` puts each chunk on a different node", "place", scattered),
        ("group", "the job uses the right group", "group", right_group),
        ("time_limit", "`walltime` is a sensible time limit", "walltime", right_walltime),
    )
    criteria = tuple(_criterion(*row) for row in rows if nodes > 1 or row[0] != "node_per_chunk")
    case = {"nodes": nodes, "processes": processes, "program": program}
    probe = "grader.probes.simulated_job:run"
    return (Check("resources", probe, (case,), criteria, given=_given, observed=_observed),)
