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


def main():
    command.step_aside("qstat")
    command.run("qstat", show, USAGE)


def show(words):
    from handson.cluster import site
    from handson.pbs import machine, store
    from handson.pbs.errors import PBSError

    if words == ["--version"]:
        print("pbs_version = embedded PBS of the hands-on course, in the manner of 23.06")
        return 0
    flags, values, operands = parse(words)
    server = machine.server_name()
    look_after_the_queue()
    with store.reading() as db:
        if "Q" in flags or "q" in flags or "B" in flags:
            here = site.load(site_path(db))
            (show_server if "B" in flags else show_queues)(here, store.select(db), server, flags)
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
    for error in errors:
        sys.stdout.flush()
        command.say("qstat", error)
    return errors[-1].status if errors else 0


def look_after_the_queue():
    """Make sure that the queue has a scheduler. If that fails, the command still answers."""
    from handson.errors import OneSentence
    from handson.pbs import scheduler

    try:
        scheduler.ensure()
    except (OSError, OneSentence) as error:
        command.say("qstat", f"the queue does not go on: {error}")


def parse(words):
    from handson.pbs.errors import PBSError

    flags, values, operands, words = set(), {}, [], list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            operands.append(word)
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in "uFD":
                if not letters and not words:
                    raise PBSError(f"option requires an argument -- '{letter}'", 2, usage=True)
                values[letter], letters = letters or words.pop(0), ""
            elif letter in FLAGS:
                flags.add(letter)
            else:
                raise PBSError(f"invalid option -- '{letter}'", 2, usage=True)
    if values.get("F", "default") not in ("default", "dsv", "json"):
        raise PBSError("illegal -F value", 2, usage=True)
    return flags, values, operands


def site_path(db):
    from handson.pbs import store
    from handson.pbs.qsub import current_site

    return store.meta(db, "site") or current_site()


def choose_all(db, flags):
    """The jobs that a plain qstat with these flags shows: arrays as one line, finished ones with -x (-H: only those)."""
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
    """The jobs that one operand means: a job, an array with its sub-jobs (-t), a queue, or ``@server``."""
    from handson.cluster import site
    from handson.pbs import store
    from handson.pbs.errors import PBSError, unknown_job, unknown_queue

    if not operand[0].isdigit():
        queue, _, named = operand.partition("@")
        here = site.load(site_path(db))
        if queue and queue not in here.queues:
            raise unknown_queue(queue)
        if named and named.split(".")[0] != server:
            raise PBSError(f"Unknown Host {named}", 1)
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
            job["state"] = "X"  # a sub-job that has ended, of an array that has not
    if "f" in flags:
        return show_full(jobs, values, server)
    if flags & set("airHTns1w") or "u" in values:
        show_alternative(jobs, flags, server)
    else:
        show_default(jobs)


def shorten(text, width):
    """Cut what is too wide, with PBS's ``*`` in the last column."""
    return text if len(text) <= width else text[: width - 1] + "*"


def show_default(jobs):
    if not jobs:
        return
    print("Job id            Name             User              Time Use S Queue")
    print("----------------  ---------------- ----------------  -------- - -----")
    from handson.pbs.attributes import used_so_far

    for job in jobs:
        used = (job.get("used") or used_so_far(job, time.time())).get("cput", "0")
        job_id, name, user = shorten(f"{job['id']}.{job['server']}", 16), shorten(job["name"], 16), shorten(job["user"], 16)
        print(f"{job_id:<16}  {name:<16} {user:<16}  {used:>8} {job['state']} {shorten(job['queue'], 16)}")


def show_alternative(jobs, flags, server):
    """qstat -a and its relatives."""
    if not jobs:
        return
    wide = {"id": 30, "user": 15, "queue": 15, "name": 15} if "w" in flags else {"id": 15, "user": 8, "queue": 8, "name": 10}
    left = sum(wide.values()) + 19
    print(f"\n{server}: ")
    print(" " * left + "Req'd  Req'd   Elap")
    titles = f"{'Job ID':<{wide['id']}} {'Username':<{wide['user']}} {'Queue':<{wide['queue']}} {'Jobname':<{wide['name']}}"
    print(f"{titles} SessID NDS TSK Memory Time  S Time")
    print(" ".join("-" * width for width in (*wide.values(), 6, 3, 3, 6, 5, 1, 5)))
    for job in jobs:
        print(alternative_line(job, wide))
        if "n" in flags and job.get("exec_host"):
            print(f"   {job['exec_host']}")
        if "s" in flags:
            print(f"   {job.get('comment') or '--'}")


def alternative_line(job, wide):
    asked, now = job["asked"]["listing"], time.time()
    names = {"id": f"{job['id']}.{job['server']}", "user": job["user"], "queue": job["queue"], "name": job["name"]}
    cells = " ".join(f"{shorten(names[key], width):<{width}}" for key, width in wide.items())
    session = str(job.get("session") or "-- ")
    memory = short_size(asked["mem"]) if "mem" in asked else "-- "
    limit = short_time(job["asked"]["walltime"]) if job["asked"]["walltime"] is not None else "-- "
    began = job.get("stime")
    elapsed = short_time((job.get("obittime") or now) - began) if began else "-- "
    return f"{cells} {session:>6} {asked['nodect']:>3} {asked.get('ncpus', '--'):>3} {memory:>6} {limit:>5} {job['state']} {elapsed:>5}"


def short_time(seconds):
    """``HH:MM``"""
    return f"{int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}"


def short_size(text):
    """``4gb`` for ``4194304kb``: five characters at most."""
    from handson.pbs.resources import parse_size

    size = parse_size(text)
    for unit in ("kb", "mb", "gb"):
        if size < 10_000:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}tb"


def show_full(jobs, values, server):
    from handson.pbs.attributes import job_attributes

    listing = {f"{job['id']}.{job['server']}": job_attributes(job) for job in jobs}
    if values.get("F") == "json":
        import json

        print(json.dumps({"timestamp": int(time.time()), "pbs_version": "embedded", "pbs_server": server, "Jobs": listing}, indent=4))
        return
    for job_id, attributes in listing.items():
        lines = []
        for name, value in attributes.items():
            if name == "Variable_List":
                lines.append(f"{name} = " + ",".join(f"{key}={text}" for key, text in value.items()))
            elif isinstance(value, dict):
                lines += [f"{name}.{key} = {text}" for key, text in value.items()]
            else:
                lines.append(f"{name} = {value}")
        if values.get("F") == "dsv":
            print(values.get("D", "|").join([f"Job Id: {job_id}", *(line.replace(" = ", "=", 1) for line in lines)]))
        else:
            print("\n    ".join([f"Job Id: {job_id}", *(line.replace("\n", "\n\t") for line in lines)]) + "\n")


def show_queues(here, jobs, server, flags):
    lines = []
    for queue in here.queues:
        counts = {state: 0 for state in "QRHWTEB"}
        for job in jobs:
            if job["queue"] == queue and job["state"] != "F" and job["index"] is None:
                counts[job["state"]] += 1
        lines.append((queue, sum(counts.values()), counts))
    if "f" in flags:
        for queue, total, counts in lines:
            states = zip(("Transit", "Queued", "Held", "Waiting", "Running", "Exiting", "Begun"), "TQHWREB", strict=True)
            state_count = " ".join(f"{name}:{counts[letter]}" for name, letter in states)
            print(f"Queue: {queue}\n    queue_type = Execution\n    total_jobs = {total}\n    state_count = {state_count} ")
            print("    enabled = True\n    started = True\n")
        return
    print("Queue              Max   Tot Ena Str   Que   Run   Hld   Wat   Trn   Ext Type")
    print("---------------- ----- ----- --- --- ----- ----- ----- ----- ----- ----- ----")
    for queue, total, counts in lines:
        numbers = " ".join(f"{counts[letter]:>5}" for letter in "QRHWTE")
        print(f"{shorten(queue, 16):<16} {0:>5} {total:>5} yes yes {numbers} Exec")


def show_server(here, jobs, server, flags):
    jobs = [job for job in jobs if job["state"] != "F" and job["index"] is None]
    counts = {letter: sum(job["state"] == letter for job in jobs) for letter in "QRHWTE"}
    if "f" in flags:
        print(f"Server: {server}\n    server_state = Active\n    server_host = {server}\n    scheduling = True\n    total_jobs = {len(jobs)}")
        print(f"    default_queue = {here.queues[0]}\n    job_history_enable = True\n    job_history_duration = 336:00:00\n    pbs_version = embedded\n")
        return
    print("Server             Max   Tot   Que   Run   Hld   Wat   Trn   Ext Status")
    print("---------------- ----- ----- ----- ----- ----- ----- ----- ----- -----------")
    print(f"{shorten(server, 16):<16} {0:>5} {len(jobs):>5} " + " ".join(f"{counts[letter]:>5}" for letter in "QRHWTE") + " Active")
