"""qstat: show jobs, queues or the server, in PBS's layouts."""

import sys
import time

from handson.pbs import command

USAGE = """\
usage: qstat [-f] [-J] [-p] [-t] [-x] [-E] [-F format] [-D delim] [ job_identifier... | destination... ]
       qstat [-a|-i|-r|-H|-T] [-J] [-t] [-u user] [-n] [-s] [-G|-M] [-1] [-w] [ job_identifier... | destination... ]
       qstat -Q [-f] [-F format] [ destination... ]
       qstat -B [-f] [-F format] [ server_name... ]
       qstat --version"""
FLAGS = "fJptxEairHTnsGM1wQBq"
FOLD = 79  # columns of a line of `qstat -f`
NUMBERS = (
    "cpupercent",
    "mpiprocs",
    "ncpus",
    "ngpus",
    "nodect",
    "nice",
    "ompthreads",
    "Priority",
    "session_id",
    "substate",
    "run_count",
    "array_index",
    "Exit_status",
    "history_timestamp",
)  # of the attributes that are numbers in JSON, too


def main():
    command.step_aside("qstat")
    command.run("qstat", show, USAGE)


def show(words):
    from handson.cluster import site
    from handson.pbs import machine, store
    from handson.pbs.pbs_errors import PBSError

    flags, values, operands = parse(words)
    server = machine.server_name()
    look_after_the_queue()
    with store.reading() as db:
        if flags & set("QqB"):
            here = site.load(site_path(db))
            jobs = [job for job in store.select(db) if job["state"] != "F" and job["index"] is None]
            (show_server if "B" in flags else show_queues)(here, jobs, server, flags, operands)
            return 0
        chosen, errors = [], []
        for operand in operands:
            try:
                chosen += choose(db, operand, flags, server)
            except PBSError as error:
                errors.append(error)
        if not operands:
            chosen = choose_all(db, flags)
        if "u" in values:
            chosen = [job for job in chosen if job["user"] in values["u"].split(",")]
        if "J" in flags:
            chosen = [job for job in chosen if job["array"] or job["index"] is not None]
        show_jobs(db, chosen, flags, values, server)
    sys.stdout.flush()
    for error in errors:
        command.report("qstat", error)
    return errors[-1].status if errors else 0


def look_after_the_queue():
    """Start a scheduler if the queue has none. If that fails, the command still answers."""
    from handson.errors import OneSentence
    from handson.pbs import scheduler

    try:
        scheduler.ensure()
    except (OSError, OneSentence) as error:
        command.say("qstat", f"the scheduler has stopped: {error}")


def parse(words):
    from handson.pbs.pbs_errors import illegal_option_value

    found, operands, behind = command.split(words, "uFD", FLAGS)
    values = {letter: value for letter, value in found if letter in "uFD"}
    if values.get("F", "default") not in ("default", "dsv", "json"):
        raise illegal_option_value("F")
    return {letter for letter, _ in found} - values.keys(), values, operands + (behind or [])


def site_path(db):
    """Return the site of the nodes and queues: the site of unfinished jobs, or otherwise the chosen one."""
    from handson.cluster import site
    from handson.pbs import store

    return store.site_in_force(db) or site.path_of()


def choose_all(db, flags):
    """Return the jobs that a plain qstat with these flags shows: arrays as one line, finished jobs with -x (-H: only
    those)."""
    from handson.pbs import store

    where = "state = 'F'" if "H" in flags else "1" if "x" in flags else store.UNFINISHED
    if "t" not in flags:
        where += " AND idx IS NULL"
    if "r" in flags:
        where += " AND state IN ('R', 'E', 'B')"
    if "i" in flags:
        where += " AND state IN ('Q', 'H', 'W')"
    return store.select(db, where)


def choose(db, operand, flags, server):
    """Return the jobs of one operand: a job, an array with its sub-jobs (-t), a queue, or ``@server``."""
    from handson.cluster import site
    from handson.pbs import store
    from handson.pbs.pbs_errors import PBSError, unknown_host, unknown_job, unknown_queue

    if not operand[:1].isdigit():
        queue, _, named = operand.partition("@")
        here = site.load(site_path(db))
        if named and named.split(".")[0] != server:
            raise unknown_host(server, 255)
        if queue and queue not in here.queues:
            raise unknown_queue(f"destination {queue}")
        return [job for job in choose_all(db, flags) if not queue or job["queue"] == queue]
    name = command.job_name(operand, server)
    job = store.get(db, name)
    if job is None:
        raise unknown_job(operand if "." in operand else f"{name}.{server}")
    if job["state"] == "F" and not flags & {"x", "H"} and not _array_lives(db, job):
        raise PBSError(f"{name}.{server} Job has finished, use -x or -H to obtain historical job information", 35)
    if job["array"] and "t" in flags:
        return [job, *store.select(db, "seq = ? AND idx IS NOT NULL", job["seq"])]
    return [job]


def _array_lives(db, job):
    from handson.pbs import store

    return job["index"] is not None and store.get(db, f"{job['seq']}[]")["state"] != "F"


def show_jobs(db, jobs, flags, values, server):
    for job in jobs:
        if job["state"] == "F" and job["index"] is not None and _array_lives(db, job):
            job["state"] = "X"  # a sub-job that has ended, in an array that has not
    if "f" in flags:
        return show_full(jobs, values, server)
    if flags & set("airHTnsGM") or "u" in values:
        show_alternative(jobs, flags, server)
    else:
        show_default(jobs, done="p" in flags)


def shorten(text, width):
    """Shorten a text that is too wide, with PBS's ``*`` in the last column."""
    return text if len(text) <= width else text[: width - 1] + "*"


def show_default(jobs, done=False):
    """Print the plain table. done: include the share of its walltime that a job has used."""
    if not jobs:
        return
    print(f"Job id            Name             User              {' % done ' if done else 'Time Use'} S Queue")
    print("----------------  ---------------- ----------------  -------- - -----")
    from handson.pbs.attributes import used_so_far

    for job in jobs:
        used = share_done(job) if done else (job.get("used") or used_so_far(job, time.time())).get("cput", "0")
        job_id, name, user = (
            shorten(f"{job['id']}.{job['server']}", 16),
            shorten(job["name"], 16),
            shorten(job["user"], 16),
        )
        print(f"{job_id:<16}  {name:<16} {user:<16}  {used:>8} {job['state']} {shorten(job['queue'], 16):<16}")


def share_done(job):
    """Return, for example, ``50 ``: the percentage of its walltime that a running job has used."""
    limit = job["asked"]["walltime"]
    return f"{int(100 * min(1, (time.time() - job['stime']) / limit)):>3} " if limit and job["state"] in "RE" else "-- "


def show_alternative(jobs, flags, server):
    """Print the table of qstat -a and related options."""
    if not jobs:
        return
    widths = (30, 15, 15, 15, 8, 4, 5) if "w" in flags else (15, 8, 8, 10, 6, 3, 3)
    print(f"\n{server}: ")
    print(" " * (sum(widths) + 7) + "Req'd  Req'd   Elap")
    titles = ("Job ID", "Username", "Queue", "Jobname", "SessID", "NDS", "TSK")
    print(*(f"{title:<{width}}" for title, width in zip(titles, widths, strict=True)), "Memory Time  S Time")
    print(*("-" * width for width in (*widths, 6, 5, 1, 5)))
    for job in jobs:
        line = alternative_line(job, widths, "gb" if "G" in flags else None)
        if "n" in flags:
            line += (" " if "1" in flags else "\n   ") + (job.get("exec_host") or " -- ")
        print(line)
        if "s" in flags:
            print(f"   {job.get('comment') or ' -- '}")


def alternative_line(job, widths, unit):
    asked, now = job["asked"]["listing"], time.time()
    names = (f"{job['id']}.{job['server']}", job["user"], job["queue"], job["name"])
    cells = " ".join(f"{shorten(name, width):<{width}}" for name, width in zip(names, widths, strict=False))
    session = str(job.get("session") or "-- ")
    memory = short_size(asked["mem"], unit) if "mem" in asked else "-- "
    limit = short_time(job["asked"]["walltime"]) if job["asked"]["walltime"] is not None else "-- "
    began = job.get("stime")
    elapsed = short_time((job.get("obittime") or now) - began) if began else "-- "
    numbers = " ".join(
        f"{number:>{width}}"
        for number, width in zip((session, asked["nodect"], asked.get("ncpus", "-- ")), widths[4:], strict=True)
    )
    return f"{cells} {numbers} {memory:>6} {limit:>5} {job['state']} {elapsed:>5}"


def short_time(seconds):
    """Return ``HH:MM``."""
    return f"{int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}"


def short_size(text, smallest=None):
    """Return, for example, ``4gb`` for ``4194304kb``, in at most six characters. smallest: a unit such as "gb"; smaller
    sizes are rounded up to it."""
    from handson.pbs.resources import parse_size

    size = parse_size(text)
    for unit in ("kb", "mb", "gb"):
        if size < 10_000 and smallest in (None, unit):
            return f"{size}{unit}"
        smallest = None if smallest == unit else smallest
        size = -(-size // 1024)
    return f"{size}tb"


def show_full(jobs, values, server):
    from handson.pbs.attributes import job_attributes

    listing = {f"{job['id']}.{job['server']}": job_attributes(job) for job in jobs}
    if values.get("F") == "json":
        import json

        answer = {
            "timestamp": int(time.time()),
            "pbs_version": "embedded",
            "pbs_server": server,
            "Jobs": with_numbers(listing),
        }
        print(json.dumps(answer, indent="\t", separators=(",", ":\t")))
        return
    for job_id, attributes in listing.items():
        flat = {}
        for name, value in attributes.items():
            if name == "Variable_List":
                flat[name] = ",".join(f"{key}={text}" for key, text in value.items())
            elif isinstance(value, dict):
                flat |= {f"{name}.{key}": text for key, text in value.items()}
            else:
                flat[name] = value
        if values.get("F") == "dsv":
            print(
                values.get("D", "|").join([f"Job Id: {job_id}", *(f"{name}={value}" for name, value in flat.items())])
            )
        else:
            print(f"Job Id: {job_id}", *(folded(name, value) for name, value in flat.items()), "", sep="\n")


def with_numbers(value, name=""):
    """Return attributes for JSON, in which counts are numbers."""
    if isinstance(value, dict):
        return {key: with_numbers(item, key if name != "Variable_List" else "") for key, item in value.items()}
    return int(value) if name in NUMBERS else value


def folded(name, value):
    """Return ``    name = value``, wrapped after commas beyond FOLD columns, or anywhere in a text without commas.
    Further lines begin with a tab."""
    text = f"    {name} = "
    column = len(text)
    for number, part in enumerate(value.replace("\n", "\n\t").split(",")):
        text += "," if number else ""
        if column + len(part) >= FOLD - 1 and number:
            text, column = text + "\n\t", 9
        while len(part) > FOLD - column:
            text, part, column = text + part[: FOLD - column] + "\n\t", part[FOLD - column :], 8
        text, column = text + part, column + len(part)
    return text


def show_queues(here, jobs, server, flags, names):
    from handson.pbs.pbs_errors import unknown_queue

    for name in names:
        if name.partition("@")[0] not in here.queues:
            raise unknown_queue(name)
    lines = []
    for queue in [queue for queue in here.queues if not names or queue in [name.partition("@")[0] for name in names]]:
        counts = {state: sum(job["queue"] == queue and job["state"] == state for job in jobs) for state in "QRHWTEB"}
        lines.append((queue, sum(counts.values()), counts))
    longest = here.walltime
    if "f" in flags:
        for queue, total, counts in lines:
            states = zip(
                ("Transit", "Queued", "Held", "Waiting", "Running", "Exiting", "Begun"), "TQHWREB", strict=True
            )
            facts = {"queue_type": "Execution", "total_jobs": str(total)}
            facts["state_count"] = " ".join(f"{name}:{counts[letter]}" for name, letter in states) + " "
            facts |= {"resources_max.walltime": longest} if longest else {}
            facts |= {"enabled": "True", "started": "True"}
            print(f"Queue: {queue}", *(folded(name, value) for name, value in facts.items()), "", sep="\n")
        return
    if "q" in flags:
        print(f"\nserver: {server}\n")
        print("Queue            Memory CPU Time Walltime Node   Run   Que   Lm  State")
        print("---------------- ------ -------- -------- ---- ----- ----- ----  -----")
        total_run = total_waiting = 0
        for queue, _, counts in lines:
            run, waiting = counts["R"], counts["Q"] + counts["H"] + counts["W"]
            total_run, total_waiting = total_run + run, total_waiting + waiting
            print(
                f"{shorten(queue, 16):<16}   --      --    {longest or '--   ':>8}  --  {run:>5} {waiting:>5}   -- "
                "  E R"
            )
        print(f"{'':47}----- -----\n{'':47}{total_run:>5} {total_waiting:>5}")
        return
    print("Queue              Max   Tot Ena Str   Que   Run   Hld   Wat   Trn   Ext Type")
    print("---------------- ----- ----- --- --- ----- ----- ----- ----- ----- ----- ----")
    for queue, total, counts in lines:
        numbers = " ".join(f"{counts[letter]:>5}" for letter in "QRHWTE")
        print(f"{shorten(queue, 16):<16} {0:>5} {total:>5} yes yes {numbers} Exe*")


def show_server(here, jobs, server, flags, names):
    from handson.pbs.pbs_errors import unknown_host

    if any(name.split(".")[0] != server for name in names):
        raise unknown_host(server, 255)
    counts = {letter: sum(job["state"] == letter for job in jobs) for letter in "QRHWTE"}
    if "f" in flags:
        print(
            f"Server: {server}\n    server_state = Active\n    server_host = {server}\n    scheduling = True\n   "
            f" total_jobs = {len(jobs)}"
        )
        print(
            f"    default_queue = {here.queues[0]}\n    job_history_enable = True\n    job_history_duration ="
            " 336:00:00\n    pbs_version = embedded\n"
        )
        return
    print("Server             Max   Tot   Que   Run   Hld   Wat   Trn   Ext Status")
    print("---------------- ----- ----- ----- ----- ----- ----- ----- ----- -----------")
    print(
        f"{shorten(server, 16):<16} {0:>5} {len(jobs):>5} "
        + " ".join(f"{counts[letter]:>5}" for letter in "QRHWTE")
        + " Active    "
    )
