"""The checks of the job scripts: their #PBS lines are read as the site's batch system reads them, and compared with the
site. No script is run here. Where the batch system is PBS, what qsub accepts is right, however it is written, if the
job then trains; Slurm's sbatch reads some of it differently."""

import re
import shlex
from dataclasses import replace

from grader.checks.check import Check, Criterion
from handson.cluster import site
from handson.pbs import directives, resources
from handson.pbs.command_options import Options, split, variable_list
from handson.pbs.pbs_errors import PBSError

LOOKS_LIKE_ONE = re.compile(r"\s*#+\s*(PBS|SBATCH)(\s*-\S|\s+[a-z]\s)", re.IGNORECASE)
KEYS = {  # what a line is about that asks for it, rightly or not
    "queue": "-q|--partition|PBS q ",
    "select": "select|nodes=|ncpus|ngpus|mpiprocs|ppn|mem=",
    "place": "place",
    "group": "group|account|-A",
    "walltime": "walltime|--time|time limit|-l *time",
}
LONGEST = 1000  # characters of a directive
# that do a training no harm; with others, a job waits, runs many times, or for somebody else
OPTIONS = "qlWNjoemMVvrASkRPpczf"
ATTRIBUTES = ("group_list", "umask", "block", "project", "accounting_id")  # of -W, likewise
# of -l and select, likewise
OF_JOB, OF_NODE = ("select", "nodes", "place", "walltime"), ("count", "ncpus", "ngpus", "mpiprocs", "ompthreads", "mem")
ONLY_EMBEDDED = ("network", "gpu_memory")
SHELL = "(/usr(/local)?)?/bin/(ba|z|k|da)?sh"  # that can run the commands which are given
JUDGED = {"select": "1", "nodes": "1", "place": "free", "walltime": "1"}  # in place of the values that criteria judge
SHORTEST = 60  # seconds that a training needs at least
# kB: what Python and its libraries need at least, and more than a node has
LEAST_MEMORY, MOST_MEMORY = 100 << 10, 4 << 30
# of several requests for one of these, PBS takes the first, and sbatch and the embedded PBS the last
ONCE = ("select", "place", "walltime")
LONGEST_SCRIPT, LONGEST_VALUE = 20_000, 300  # characters that are read as commands, and of a variable that is followed
LAUNCHER = re.compile(r"\b((mpiexec|mpirun)\w*|srun|torchrun|torch\.distributed\.(run|launch))\b")
RANKS = re.compile(r"\s--?(?:n|np|ntasks)(?:[ =]+|(?=[0-9]))(\S+)")  # the option of a launcher
# a command that a launcher starts: its options are its own
LAUNCHED = re.compile(r"\s\S*\b(python|nice|ionice|conda)\b")
THREADS = re.compile(r"\bOMP_NUM_THREADS(?:=| (?=[0-9]))([0-9]{1,9})?")
# and run nothing
SHOWS = (
    "echo",
    "printf",
    ":",
    "true",
    "ls",
    "cat",
    "head",
    "tail",
    "wc",
    "grep",
    "stat",
    "diff",
    "md5sum",
    "chmod",
    "test",
    "[",
    "[[",
)
WAITS = re.compile(r"\b(wait|fg|jobs)\b|\$!")  # for what runs in the background
OPENS, CLOSES = ("if", "case", "for", "while", "until", "{"), ("fi", "esac", "done", "}")
BEFORE_A_COMMAND = (
    *OPENS,
    *CLOSES,
    "then",
    "else",
    "elif",
    "do",
    "!",
    "time",
    "exec",
    "env",
    "nice",
    "nohup",
    "timeout",
    "command",
)
ASSIGNS = ("export", "declare", "typeset", "readonly", "local", ":")
ASSIGNMENT = re.compile(r"(?:\$\{)?(\w+):?=(\(?)(.*)", re.DOTALL)
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:\[[@*]\]|:?[-=?][^{}]*)?\})")
IN_PARENTHESES = r"\((?:[^()]|\([^()]*\))*+\)"
TOKEN = re.compile(  # of a shell script
    rf"""(?P<blank> (?:[^\S\n]|\\\n)+ | \#[^\n]*)
    | <<-?[^\S\n]* (?P<here> '[^'\n]+' | "[^"\n]+" | [^\s;&|()<>0-9]+)
    | (?P<word> (?:'[^']*' | "(?:\\.|\${IN_PARENTHESES}|[^"\\])*+"     # in quotation marks
        | [$<>]{IN_PARENTHESES} | `[^`]*` | \$\{{[^{{}}\n]*\}}         # what a command prints, or a variable holds
        | (?<==){IN_PARENTHESES}                                   # the words of an array
        | \\. | [<>]& | &> | <<< | <(?!<) | [^\s;&|()<'"`\\])+)        # redirections with a sign that would end a command; other characters
    | (?P<end> [;&|()]+[^\S\n]*\n? | \n)
    | .""",
    re.VERBOSE | re.DOTALL,
)
UP_TO_A_COLON = re.compile(r"\b(select|ncpus|mpiprocs)=([^:]*)")  # numbers that sbatch reads up to the next colon
NEEDLESS = "which the training does not need, and with which the job may not train: leave it out"
ONE_EACH = "give each request a line `#PBS -l` of its own"


def _wanted(seen, case):
    """(nodes, processes on each): 1 of a case stands for one, more stand for as many as the site's exercises use."""
    here = seen["site"]
    return here.exercise_nodes if case["nodes"] > 1 else 1, here.exercise_gpus if case["processes"] > 1 else 1


def requests(text, case):
    """What a job script asks for, a dictionary:

    "queue", "select", "place", "group", "walltime": each a text, or None if no line asks for it "problems": the same
    names -> a sentence on why qsub refuses a line "ignored": the same names -> a sentence on why nobody reads a line,
    which counts only if no other line asks for it "job": a sentence on why the job can't train, whatever the criteria
    judge, or None "ranks": for each command that trains, the number of ranks that mpiexec starts; None if that follows
    from the node file "mpiexec": whether each of them is started by it, or by another command that starts ranks, as far
    as one can see "threads": for each of them, the number of threads that a command sets, or None "site": the Site that
    the case names, or the chosen one
    """
    here = site.read(case.get("site") or site.chosen())
    found, commands = (
        dict.fromkeys(KEYS) | {"problems": {}, "ignored": {}, "site": here},
        _commands(text, case["program"]),
    )
    read, given, job = directives.numbered(text.encode()), [], None
    for number, line in enumerate(text.split("\n")):
        if not (LOOKS_LIKE_ONE.match(line) or read.get(number)):
            continue
        shown = f"`{line.strip()[:LONGEST]}`"
        for option, problem, ignored in _options(line, number in read, here.batch):
            values = {}
            if option:
                values, problem, ignored = _asked(*option, here.batch)
                given += [] if problem else [option]
            if again := next((key for key in ONCE if key in values and found[key] not in (None, values[key])), None):
                problem = (
                    problem
                    or f" asks for `{again}=` again, and batch systems don't agree on which line counts: keep one of them"
                )
            found |= values
            words = f"-{option[0]} {option[1]}" if option else shown
            about = [
                key
                for key, pattern in KEYS.items()
                if re.search(pattern, words) and (not option or option[0] in "qlWA")
            ]
            for name, sentence in (("problems", problem), ("ignored", ignored)):
                found[name] = (dict.fromkeys(about, f"{shown}{sentence}") if sentence else {}) | found[name]
            if problem and not about:
                job = job or f"{shown}{problem}"
    refused = _refused_together(given) if here.batch != "slurm" else None
    return found | commands | {"job": job or refused or commands["job"]}


def _options(line, read, batch):
    """For each option of a line, ((letter, value), None, None). If nothing in the line counts, a single (None, what is
    wrong if qsub refuses it, what is wrong if it is not read); what is wrong goes behind the line. read: whether PBS
    reads it as a directive."""
    slurm = batch == "slurm"
    problem = ignored = None
    if len(line) > LONGEST:
        problem = f" has {len(line)} characters, and no directive needs more than {LONGEST}"
    elif odd := next((one for one in line if one != "\t" and not one.isprintable()), None):
        problem = (
            f" has a character that is no letter, number or plain space (U+{ord(odd):04X}), as in text copied from a"
            " page: type the line anew"
        )
    elif ignored := _is_no_directive(line):
        pass
    elif not read and not slurm:
        ignored = " stands below the first command: PBS reads no directives there any more"
    elif letter := re.match(r"#PBS\s+([a-zA-Z])\s", line):
        problem = f" asks for nothing: an option begins with a hyphen, `-{letter[1]}`"
    elif "(" in line:
        problem = " is still to be filled in"
    else:
        return _words(re.sub(r"\s#.*", "", line) if slurm else line)
    return [(None, problem, ignored) if read or slurm else (None, None, problem or ignored)]


def _words(line):
    """As `_options`, of a directive."""
    try:
        given, others, command = split(shlex.split(line)[1:])
    except PBSError as error:
        return [(None, _says(error), None)]
    except ValueError:
        return [(None, ": a quotation mark in it is never closed", None)]
    if others or command is not None:
        return [(None, f": {_left_over((others or ['--'])[0])}", None)]
    return [(option, None, None) for option in given]


def _says(error):
    return f": qsub says: {' '.join(str(error).split())}"


def _asked(letter, value, batch):
    """({name: what an option asks for}, with the names of `requests`; what is wrong if qsub refuses it or the job can't
    train; what is wrong if it is not read), to be put behind the line."""
    options, slurm = Options(), batch == "slurm"
    try:
        options.add([(letter, value)])
    except PBSError as error:
        name = value.partition("=")[0].strip()
        if letter == "W" and "group" in name and name != "group_list":
            return {}, f": there is no attribute `{name}`; the group is `-W group_list=`", None
        return {}, _says(error), None
    asked = options.resources
    if "nodes" in asked and "select" not in asked and not slurm:
        asked = asked | _as_select(asked["nodes"])
    misread = _sbatch_misreads(value) if slurm and letter == "l" else None
    problem = misread or _is_no_request(asked) or _keeps_from_training(letter, options, batch)
    account = options.values.get("A")
    values = {
        "queue": options.values.get("q"),
        "group": options.attributes.get("group_list") or (account if slurm else None),
    }
    values |= {key: asked.get(key) for key in ("select", "place", "walltime")}
    bookkeeping = f" names an account, which is only for bookkeeping: the group is `#PBS -W group_list={account}`"
    return (
        {key: value for key, value in values.items() if value is not None},
        problem and f" {problem}",
        bookkeeping if account and not slurm else None,
    )


def _keeps_from_training(letter, options, batch):
    """What is wrong with an option that qsub accepts, but with which the job may not train, to be put behind the line;
    None if nothing is."""
    if letter not in OPTIONS:
        return f"has an option `-{letter}`, {NEEDLESS}"
    if attribute := next((name for name in options.attributes if name not in ATTRIBUTES), None):
        return f"has an attribute `{attribute}`, {NEEDLESS}"
    allowed = OF_JOB + ONLY_EMBEDDED * (batch == "embedded")
    if resource := next((name for name in options.resources if name not in allowed), None):
        return f"asks for `{resource}`, {NEEDLESS}"
    if letter == "S" and not re.fullmatch(SHELL, options.values["S"]):
        return "names another program to run the commands: they are for bash, `-S /bin/bash`"
    return None


def _refused_together(given):
    """A sentence if qsub refuses options [(letter, value), ...] beside each other, though it accepts each of them, else
    None."""
    together = Options()
    together.add(given)
    asked = together.resources if "nodes" in together.resources else {"select": ""} | together.resources
    variables = together.values.get("v", "")
    try:
        resources.parse({name: JUDGED.get(name, value) for name, value in asked.items()})
        # a name alone may be set where the student works
        variable_list(variables, dict.fromkeys(re.findall(r"[^\s,=]+", variables), ""))
    except PBSError as error:
        return f"qsub refuses the job, and says: {' '.join(str(error).split())}"
    return None


def _commands(text, program):
    """What `requests` returns about the commands; "job" is a sentence if they don't start `program`."""
    runs, never, leaving, launcher, left = _runs(text, program)
    problem = (
        None
        if runs
        else f"no command of the script starts {program} any more: keep the given lines below the directives"
    )
    if never and not runs:
        problem = f"the script ends at `{leaving}`, above the command that starts {program}"
    elif left:
        problem = (
            f"with `&` the script goes on beside the command that starts {program}, and ends, and the job with it:"
            " leave `&` out, or let `wait` be the last line"
        )
    return {
        "job": problem,
        "ranks": [_ranks(before) for before, _ in runs],
        "mpiexec": all(LAUNCHER.search(before) or (launcher and not _starts_with_python(before)) for before, _ in runs),
        "threads": [threads for _, threads in runs],
    }


def _runs(text, program):
    """The commands of a script that may run `program`, [(what stands before its name, the number of threads that is
    set), ...]; those below an `exit`; this `exit` or None; whether any command has a launcher; whether one that runs
    `program` has an `&`, and none after it may wait for it.

    A variable is followed if its value names the program or a launcher, since one line may hold the command and another
    run it.
    """
    named = re.compile(rf"(?<![\w.])(?<!\w-){re.escape(program)}(?![\w.-])")
    depth, threads, variables, leaving, launcher, left, runs, never = 0, None, {}, None, False, False, [], []
    for words, begins_line in _simple_commands(text[:LONGEST_SCRIPT]):
        words = [VARIABLE.sub(lambda one: variables.get(one[1] or one[2], one[0]), word) for word in words]
        depth += words[0] == "function" and words[-1] == "{"
        while words and words[0] in BEFORE_A_COMMAND:
            depth += (words[0] in OPENS) - (words[0] in CLOSES)
            words = words[1:]
        if not words:
            continue
        command, assigned = " ".join(words), [*filter(None, map(ASSIGNMENT.match, words))]
        launcher = launcher or bool(LAUNCHER.search(command))
        shows = words[0] in SHOWS or "--help" in words
        # `cat >FILE <<END` writes a script that may run later
        may_run = not shows or (words[0] == "cat" and ">" in command)
        if words[0] == "exit" and begins_line and not depth:
            leaving = leaving or command
        elif words[0] in ASSIGNS or len(assigned) == len(words):
            threads = _threads(" ".join(one[0] for one in assigned), threads)
            values = {
                one[1]: one[3].removesuffix(")" * len(one[2])) for one in assigned if len(one[3]) <= LONGEST_VALUE
            }
            variables |= {
                name: value for name, value in values.items() if named.search(value) or LAUNCHER.search(value)
            }
            may_run = re.search(r"\$\(|`", command)
        if may_run and (names := [*named.finditer(command)]):
            before = command[: names[-1].start()]
            (never if leaving else runs).append((before, _threads(before, threads)))
            left = left or command.endswith(" &")
        left = left and not WAITS.search(command)
    return runs, never, leaving, launcher, left


def _simple_commands(text):
    """(words without their quotation marks, whether the first one begins a line, outside of parentheses) of each
    command of a shell script. A here-document is a word of its command, and so is an `&` that sends it to the
    background; comments are left out."""
    found, together, words, begins_line, here, position, inside = [], [], [], True, None, 0, 0
    while position < len(text):
        token = TOKEN.match(text, position)
        position = token.end()
        if token["word"]:
            if not words:
                found.append((words, begins_line))
                together.append(words)
            words.append(re.sub(r"""\\(.)|['"]""", r"\1", token["word"], flags=re.DOTALL))
        elif token["here"]:
            here = token["here"].strip("'\"\\"), words
        elif token["end"]:
            sign = token["end"].strip()
            for command in together if sign == "&" else ():
                command.append("&")
            if sign not in ("|", "|&", "||", "&&"):
                together = []
            if here and token["end"].endswith("\n"):
                if closing := re.compile(rf"\n[^\S\n]*{re.escape(here[0])}(?=\n|\Z)").search(text, position - 1):
                    here[1].append(text[position - 1 : closing.start()])
                    position = closing.end()
                here = None
            words = []
            # the pattern of a case has but a closing one
            inside = max(0, inside + token["end"].count("(") - token["end"].count(")"))
        begins_line = token["end"] == "\n" and not inside
    return found


def _threads(words, so_far):
    """The number of threads that is in force behind these words: None if nobody can see it."""
    numbers = THREADS.findall(words)
    return (int(numbers[-1]) if numbers[-1] else None) if numbers else so_far


def _ranks(before):
    """The number of ranks that is written between a launcher and the program: None if there is none, or not as a
    number."""
    launchers = [*LAUNCHER.finditer(before)]
    if not launchers or any("torch" in one[0] for one in launchers):
        return None
    of_parts = re.split(r"\s:\s", before[launchers[0].end() :])  # mpiexec -n 2 python ... : -n 2 python ...
    numbers = [(["", *RANKS.findall(LAUNCHED.split(part)[0])])[-1] for part in of_parts]
    return sum(map(int, numbers)) if all(re.fullmatch("[0-9]{1,9}", number) for number in numbers) else None


def _starts_with_python(before):
    """Whether a command begins with Python or the program itself, and not with a variable, a function or a command that
    may start ranks."""
    first = next(
        (
            word
            for word in before.split()
            if word not in BEFORE_A_COMMAND and not re.match(r"-|[0-9]|\w+=(?!\$\(|`)", word)
        ),
        "",
    )
    return bool(re.fullmatch(r"(.*/)?(python[0-9.]*)?", first))


def _is_no_directive(line):
    """Why no batch system reads the line as a directive of a job script for qsub, or None."""
    if re.match(r"\s*#+\s*SBATCH", line, re.IGNORECASE):
        return " is a line for Slurm's sbatch; in a script for qsub, a directive begins with `#PBS`"
    if line.lstrip().startswith("##"):
        return " is a comment to PBS: the second # switches it off"
    if not re.match(r"#PBS\s", line):
        return (
            " is a comment to PBS: a directive begins with `#PBS`, in capitals, at the very start of the line, and a"
            " space"
        )
    return None


def _left_over(word):
    """What is wrong with a directive that has a word behind its options."""
    if word == "--":
        return "a directive can't have a command behind it"
    if word.startswith("#"):
        return "a directive can't have a comment behind it"
    return f"there is a space before `{word}`; a request has none inside"


def _is_no_request(asked):
    """What is wrong with the requests {name: value} of a directive, to be put behind the line; None if nothing is."""
    of_node = [name for name in asked if name in resources.CHUNK]
    if "group_list" in asked:
        return (
            "asks for a resource of that name, and there is none: the group is an attribute, `#PBS -W"
            f" group_list={asked['group_list']}`"
        )
    if {"nodes", "ppn", "ncpus", "ngpus", "mpiprocs"} & asked.keys() and "select" not in asked:
        return (
            "is Torque's way to say it: PBS Professional wants one `select=nodes:ngpus=...:mpiprocs=...:ompthreads=...`"
        )
    if of_node and "select" in asked:
        return f"has a comma before `{of_node[0]}=`, which begins a new request: inside of select, colons separate"
    if of_node:
        return (
            f"asks for it beside `select`, and qsub refuses that: write `:{of_node[0]}={asked[of_node[0]]}` into select"
        )
    if unknown := [name for name in asked if name not in resources.JOB]:
        return f"asks for a resource `{unknown[0]}`, which PBS does not know"
    return None


def _as_select(nodes):
    """The requests `select` and `place` that PBS makes of the older ``nodes=1:ppn=2:ngpus=2:ompthreads=1``; {} if it
    leaves something open."""
    try:
        select, place = resources.parse_nodes(nodes)
        complete = all({"ngpus", "mpiprocs", "ompthreads"} <= chunk.keys() for chunk in resources.parse_select(select))
    except PBSError:
        return {}
    return {"select": select, "place": place} if complete else {}


def _sbatch_misreads(text):
    """How Slurm's sbatch reads what is behind -l differently from PBS, to be put behind the line; None if it doesn't.

    Tried with Slurm 22.05.
    """
    for name, number in UP_TO_A_COLON.findall(text):
        if not re.fullmatch("[0-9]+", number):
            how = ONE_EACH if "," in number else "begin select with the number of nodes, once"
            return (
                f"can't be read by Slurm: it takes all up to the next colon for the number of `{name}=`, here"
                f" `{number}`; {how}"
            )
    if re.search(r"\bselect=[^,]*\+", text):
        return "asks Slurm only for what stands before the +: `select=` with the number of nodes asks for all of them"
    if minutes := re.search(r"\bwalltime=([0-9]+)(,|$)", text):
        return f"asks Slurm for {minutes[1]} minutes, not seconds: write hours, minutes and seconds, as in 00:10:00"
    return None


def _missing(seen, key, wanted):
    """A sentence if the line for `key` is missing or can't be read; None if its value can be judged."""
    return seen["problems"].get(key) or (
        seen["ignored"].get(key, f"no line asks for it: `{wanted}`") if seen[key] is None else None
    )


def _chunks(seen, case):
    """(the chunks of the select statement, None), or (None, a sentence that says why there are none). Where one node is
    wanted, chunks that are packed onto one node count as one chunk."""
    if problem := _missing(seen, "select", "#PBS -l select=..."):
        return None, problem
    try:
        chunks = resources.parse_select(seen["select"])
    except PBSError as error:
        if re.search(r":place=\w+", seen["select"]):
            return (
                None,
                (
                    f"`select={seen['select']}` has a colon before `place=`, which is a request of its own: give it a"
                    " line `#PBS -l place=...`"
                ),
            )
        return None, f"`select={seen['select']}`: qsub says: {str(error).strip()}"
    if needless := next((name for chunk in chunks for name in chunk if name not in OF_NODE), None):
        return None, f"`select={seen['select']}` asks for `{needless}`, {NEEDLESS}"
    packed = case["nodes"] == 1 and re.fullmatch("(.*:)?pack(:.*)?", seen["place"] or "")
    return [_together(chunks)] if packed else chunks, None


def _together(chunks):
    """The sum of chunks that are placed on one node."""
    names = {name for chunk in chunks for name in chunk if name in resources.SUMMED}
    summed = {name: sum(chunk["count"] * chunk.get(name, 0) for chunk in chunks) for name in names}
    processes = sum(chunk["count"] * chunk.get("mpiprocs", 1) for chunk in chunks)
    return {"count": 1, **summed, "mpiprocs": processes}


def right_queue(seen, case, expected):
    right = seen[0]["site"].queue
    if problem := _missing(seen[0], "queue", f"#PBS -q {right}"):
        return problem
    return (
        None
        if seen[0]["queue"] == right
        else f"the queue `{seen[0]['queue']}` is not the one for this course here: that is `{right}`"
    )


def right_nodes(seen, case, expected):
    chunks, problem = _chunks(seen[0], case)
    if problem:
        return problem
    nodes, (wanted, processes) = sum(chunk["count"] for chunk in chunks), _wanted(seen[0], case)
    if wanted == 1 and seen[0]["place"] and (problem := _unknown_place(seen[0]["place"])):
        return problem  # where more nodes are wanted, the criterion `scattered` says so
    if nodes == wanted:
        return _unfit_nodes(chunks, seen[0]["site"])
    if nodes == 1:
        return f"it asks for one node: `select` counts nodes, and here are {wanted} wanted"
    if nodes == wanted * processes and all(chunk.get("mpiprocs", 1) == 1 for chunk in chunks):
        return (
            f"it asks for {nodes} chunks, one for each process: `select` counts nodes, and mpiprocs the processes of"
            " each"
        )
    return f"it asks for {nodes} nodes; {wanted} {'is' if wanted == 1 else 'are'} wanted"


def _unfit_nodes(chunks, here):
    """A sentence if a chunk asks for more cores or memory than any node of the site has, or for too little to train,
    else None."""
    for chunk in chunks:
        cores, memory, most = chunk["ncpus"], chunk.get("mem"), here.mem or MOST_MEMORY
        if cores > here.ncpus:
            return (
                f"the job would wait for ever: each node is asked for {cores} cores (ncpus), and the nodes here have"
                f" {here.ncpus}"
            )
        if cores == 0:
            return "each node is asked for no core (ncpus=0), and the training needs one"
        if memory is not None and memory > most:
            return (
                "the job would wait for ever: each node is asked for more memory (mem) than the nodes here have,"
                f" {most >> 10} MB"
            )
        if memory is not None and memory < LEAST_MEMORY:
            return (
                f"each node is asked for {memory} kB of memory (mem), with which no training starts: a number alone is"
                " in bytes, and `1gb` is a gigabyte"
            )
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
            return (
                f"each node is asked for {gpus} GPU{'s' * (gpus > 1)}; ngpus counts those of one node, of which"
                f" {wanted} {'are' if wanted > 1 else 'is'} wanted"
            )
    return None


def right_processes(seen, case, expected):
    chunks, problem = _chunks(seen[0], case)
    if problem:
        return problem
    wanted = _wanted(seen[0], case)[1]
    total = sum(chunk["count"] * chunk.get("mpiprocs", 1) for chunk in chunks)
    if other := [ranks for ranks in seen[0]["ranks"] if ranks not in (None, total)]:
        return f"nodes times mpiprocs are {total} MPI processes, but mpiexec starts {other[0]} (-n {other[0]})"
    if case["nodes"] > 1 and not seen[0]["mpiexec"]:
        return (
            f"nodes times mpiprocs are {total} MPI processes, but no mpiexec starts them: a command runs"
            f" {case['program']} in one process"
        )
    for chunk in chunks:
        if (processes := chunk.get("mpiprocs", 1)) != wanted:
            starts = f", so mpiexec starts {total} on all nodes" * seen[0]["mpiexec"]
            return (
                f"a node has {processes} process{'es' * (processes > 1)} (mpiprocs){starts}; {wanted}"
                f" wanted{', one for each GPU' * bool(seen[0]['site'].gpus)}"
            )
    return None


def right_threads(seen, case, expected):
    _, problem = _chunks(seen[0], case)
    if problem:
        return problem
    if other := [threads for threads in seen[0]["threads"] if threads not in (None, 1)]:
        return f"a command sets OMP_NUM_THREADS to {other[0]}, which counts more than ompthreads; one thread is wanted"
    pbs = seen[0]["site"].batch != "slurm"
    for chunk in resources.parse_select(seen[0]["select"]):
        # PBS gives each chunk one core, if it asks for none
        threads = chunk.get("ompthreads", chunk["ncpus"] if pbs else None)
        if threads is None:
            return (
                "the number of threads is left open (ompthreads): with Slurm, each process then starts one for each"
                " core"
            )
        if threads != 1:
            return (
                f"each process gets {threads} threads (ompthreads{', or else ncpus' * ('ompthreads' not in chunk)});"
                " one is wanted"
            )
    return None


def scattered(seen, case, expected):
    if problem := _missing(seen[0], "place", "#PBS -l place=scatter"):
        return problem
    if problem := _unknown_place(seen[0]["place"]):
        return problem
    arrangement, _ = resources.parse_place(seen[0]["place"])
    if arrangement == "scatter":
        return None
    return (
        f"`place={arrangement}` {'puts all chunks' if arrangement == 'pack' else 'lets PBS put both chunks'} on one"
        " node"
    )


def _unknown_place(place):
    """A sentence if qsub refuses this placement, else None."""
    try:
        resources.parse_place(place)
    except PBSError as error:
        return f"PBS knows no `place={place}`" + f" ({error.hint})" * bool(error.hint)


def right_group(seen, case, expected):
    right = seen[0]["site"].group
    if right is None:
        return None if seen[0]["group"] is None else "this site has no groups: leave the line `-W group_list` out"
    if problem := _missing(seen[0], "group", f"#PBS -W group_list={right}"):
        return problem
    return (
        None
        if seen[0]["group"] == right
        else f"the group `{seen[0]['group']}` is not the one of this course here: that is `{right}`"
    )


def right_walltime(seen, case, expected):
    if problem := _missing(seen[0], "walltime", "#PBS -l walltime=00:10:00"):
        return problem
    try:
        seconds = resources.parse_time(seen[0]["walltime"])
    except ValueError:
        return f"`walltime={seen[0]['walltime']}` is no time: write hours, minutes and seconds, as in 00:10:00"
    if seconds < SHORTEST:
        return (
            f"`walltime={seen[0]['walltime']}` is {seconds} seconds, and the job is killed then: write hours, minutes"
            " and seconds, as in 00:10:00"
        )
    longest = seen[0]["site"].walltime
    if longest and seconds > resources.parse_time(longest):
        return f"`walltime={seen[0]['walltime']}` is longer than the queue allows: {longest}"
    return None


def _of_the_job(judge):
    """`judge`, which also fails if the job can't train for a reason that no criterion judges."""
    return lambda seen, case, expected: judge(seen, case, expected) or seen[0]["job"]


def checks(nodes, processes, program):
    """The checks of a job script for `nodes` nodes, with `processes` processes on each node and a GPU for each process.
    More than one stands for as many as the site's exercises use. program: the name of the file that it trains with."""
    scatter = (
        Criterion(
            "a node for each chunk", 0.5, scattered, "`-l place=` says where chunks may go: pack, free or scatter."
        ),
    )
    criteria = (
        Criterion(
            "the queue",
            0.5,
            right_queue,
            "`python -m handson site show` tells this site's queue, group and longest time.",
        ),
        Criterion(
            "the nodes",
            0.5,
            right_nodes,
            "`-l select=` begins with the number of nodes. Every batch system reads one request a line.",
        ),
        Criterion(
            "the GPUs of each node", 0.5, right_gpus, "Everything behind select's number is for each node: `:ngpus=`."
        ),
        Criterion(
            "the processes of each node",
            0.5,
            right_processes,
            "`:mpiprocs=` is the number of MPI processes on each node.",
        ),
        Criterion(
            "the threads of each process",
            0.5,
            right_threads,
            "`:ompthreads=` is the number of threads of each process.",
        ),
        *(scatter if nodes > 1 else ()),
        Criterion("the group", 0.5, right_group, "`-W group_list=`; `python -m handson site show` tells the group."),
        Criterion("the time limit", 0.5, right_walltime, "`-l walltime=` with hours, minutes and seconds: 00:10:00."),
    )
    judged = tuple(replace(criterion, judge=_of_the_job(criterion.judge)) for criterion in criteria)
    return (Check("resources", requests, ({"nodes": nodes, "processes": processes, "program": program},), judged),)
