"""qsub: submit a job. Prints its id as soon as it is safely stored."""

import os
import sys
import time

from handson import linux
from handson.pbs import command

LARGEST_SCRIPT = 100 << 20  # bytes, PBS's jobscript_max_size
DEFAULT_GROUPS = ("gt00",)  # the groups of a site whose file names none
LARGEST_ARRAY = 10_000  # sub-jobs, PBS's max_array_size


UTF_16 = "the script is in UTF-16, so no directive is read, and the shell can't run it: save it in UTF-8"
WINDOWS = "its lines end with CR LF, as on Windows; remove each CR with: sed -i 's/\\r$//' SCRIPT"


def main():
    below = ""
    if any(word.partition("=")[1] for word in sys.argv):
        from handson.cluster import slow_network  # imported late, because most calls do not need it
        from handson.pbs import resources

        below = resources.ONLY_EMBEDDED if slow_network.asked_for(sys.argv[1:]) else ""
    command.step_aside("qsub", below)
    from handson.pbs.command_options import USAGE

    command.run("qsub", submit, USAGE)


def submit(words):
    from handson.pbs import directives, jobs, scheduler
    from handson.pbs.command_options import Options, split
    from handson.pbs.pbs_errors import PBSError

    options = Options()
    found, names, executable = split(words)
    options.add(found)
    script, name = read_script(names, executable)
    prefix = options.values.get("C", os.environ.get("PBS_DPREFIX", "#PBS"))
    if executable is None:
        if b"\r\n" in script:
            raise PBSError("script contains cr, lf", 1, hint=WINDOWS)
        script = directives.joined(script, prefix)
        options.add([option for text in directives.texts(script, prefix) for option in in_directive(text, options)])
    job = describe(options, name, executable, words)
    never, other_track = impossible(job), forgotten_track(job, script)
    missing = forgotten_variable(job, script)
    job_id = store_job(job, script)
    if options.noted():
        command.say("qsub", f"accepted, without effect on this machine: {' '.join(options.noted())}")
    if "z" not in options.values:
        print(job_id, flush=True)
    if never:
        print(f"hint: {never}; `qdel {job_id.partition('.')[0]}` deletes it", file=sys.stderr)
    for hint in filter(None, (missing, other_track, UTF_16 if script[:2] in (b"\xff\xfe", b"\xfe\xff") else None)):
        print(f"hint: {hint}", file=sys.stderr)
    try:
        scheduler.ensure()
    except OSError as error:
        command.say(
            "qsub",
            f"the job was accepted, but the scheduler could not be started ({error.strerror}): run qstat to start it",
        )
    if job["block"]:
        ended = jobs.wait(job_id)
        return 3 if ended["exit_status"] is None else ended["exit_status"] & 0xFF or (1 if ended["exit_status"] else 0)
    return 0


def in_directive(text, options):
    """Return the options of the directive with this text, as `options.split` returns them; `options`: those of the
    command line. Raises PBSError."""
    import shlex

    from handson.pbs import directives
    from handson.pbs.command_options import Options, split
    from handson.pbs.pbs_errors import PBSError

    try:
        found, names, behind = split(shlex.split(text))
        tried = Options()
        tried.values = options.values  # directives that the command line overrides are not even parsed
        tried.add(found)
    except ValueError:
        raise directives.error_in(text) from None
    except PBSError as error:
        raise directives.error_in(text, error) if error.usage else error from None
    if names or behind is not None:
        raise directives.error_in(text)
    return found


def read_script(names, executable):
    """Return (the script's bytes, the job's default name). Raises PBSError with PBS's messages."""
    from handson.pbs.command_options import JOB_NAME
    from handson.pbs.pbs_errors import PBSError

    if len(names) > (0 if executable is not None else 1):
        hint = (
            f"these would be several scripts: {', '.join(names)}; quote a value that has spaces, as in -v"
            ' "OPTIONS=--epoch 2"'
        )
        raise PBSError(status=2, usage=True, hint=hint if executable is None else "")
    if executable is not None:
        if not executable:
            raise PBSError(status=2, usage=True)
        return b"", "STDIN"
    if not names or names[0] in ("", "-"):
        return _limited(sys.stdin.buffer), "STDIN"
    try:
        if os.path.exists(names[0]) and not os.path.isfile(names[0]):
            raise PBSError("script not a file", 1)
        with open(names[0], "rb") as file:
            script = _limited(file)
    except FileNotFoundError as error:
        raise PBSError(f"script file:: {error.strerror}", 1, hint=where_it_is(names[0])) from None
    except OSError as error:
        raise PBSError(f"opening script file:: {error.strerror}", 8) from None
    name = os.path.basename(names[0])
    if len(name) > 230 or not JOB_NAME.fullmatch(name):
        name = None  # requires -N
    return script, name


def where_it_is(script):
    """Return a hint on the folder that contains a script which was not found, or ""."""
    from handson.files import COURSE

    folders = [
        path.parent
        for room in ("exercises", "jobs", "solutions")
        for path in sorted(COURSE.glob(f"{room}/*/{os.path.basename(script)}"))
    ]
    return f"this folder is {os.getcwd()}; the script is in {folders[0]}" if folders else ""


def _limited(file):
    from handson.pbs.pbs_errors import PBSError

    script = file.read(LARGEST_SCRIPT + 1)
    if len(script) > LARGEST_SCRIPT:
        raise PBSError("jobscript size exceeded the jobscript_max_size", 15175 % 256)
    return script


def describe(options, name, executable, words):
    """Return the new job, without its number. Raises PBSError for requests that PBS's server would refuse."""
    from handson.cluster import site
    from handson.pbs import machine, pbs_errors, resources
    from handson.pbs.command_options import FIELDS, everything, variable_list

    given, attributes = options.values, options.attributes
    name = given.get("N", name)
    if name is None:
        raise pbs_errors.PBSError("cannot form a valid job name from the script name", 1)
    path = current_site()
    here, server, me = site.load(path), machine.server_name(), linux.user()
    asked = resources.parse(options.resources, here.walltime, here.strict)
    check_user(given.get("u", ""), me)
    queue = choose_queue(given.get("q", ""), here, server)
    check_groups(attributes.get("group_list", ""), here)
    environment = dict(os.environ)
    sent = everything(environment) if "V" in given and not here.strict else {}  # 23.06.06 ignores -V
    sent |= variable_list(given.get("v", ""), environment)
    for resource in () if here.strict else resources.EMBEDDED:
        variable = f"HANDSON_{resource.upper()}"
        if value := options.resources.get(resource) or sent.get(variable) or environment.get(variable):
            sent[variable] = checked(variable, value, resources.JOB[resource])
    directory = environment["PWD"] if _is_here(environment.get("PWD")) else os.getcwd()
    sent |= pbs_o_variables(environment, server, queue, directory, me)
    hosts = {server, "localhost", *(node.name for node in machine.nodes(here))}
    now = time.time()
    held = "h" in given
    return {
        "name": name,
        "user": me.pw_name,
        "home": environment.get("HOME") or me.pw_dir,
        "login_shell": (
            me.pw_shell
            if os.access(me.pw_shell, os.X_OK) and not me.pw_shell.endswith(("nologin", "false"))
            else "/bin/sh"
        ),
        "server": server,
        "queue": queue,
        "site": path,
        "resources": options.resources,
        "asked": asked,
        **{key: value_of(given.get(letter, default)) for letter, (key, default, value_of) in FIELDS.items()},
        "output": output_file("o", given, directory, hosts),
        "error": output_file("e", given, directory, hosts),
        "workdir": directory,
        "shell": choose_shell(given.get("S"), hosts),
        "command": executable,
        "variables": sent,
        "hold": "u" if held else "n",
        "depend": attributes.get("depend", []),
        "array": given.get("J"),
        "groups": attributes.get("group_list", ""),
        "umask": attributes.get("umask", ""),
        "block": bool(attributes.get("block")),
        "arguments": words,
        "state": "H" if held or attributes.get("depend") else "W" if given.get("a", 0) > now else "Q",
        "ctime": now,
        "qtime": now,
        "index": None,
    }


def impossible(job):
    """Return a sentence if no idle nodes of the site could ever run the job, otherwise None."""
    from handson.cluster import site
    from handson.pbs import machine, placement

    here = site.load(job["site"])
    why = placement.impossible(job["asked"], machine.nodes(here))
    return why and (
        f"this job will wait forever, because it asks for more than there is ({why.partition(': ')[2]}):"
        f" {here.nodes} nodes with ncpus={here.ncpus} and ngpus={here.gpus} each"
    )


def forgotten_track(job, script):
    """Return a sentence if the job will run a PyTorch script with gaps because TRACK is not set, otherwise None."""
    import re

    found = re.search(rb"\$\{TRACK:-(\w+)\}/(\w+\.py)", script)
    if not found or "TRACK" in job["variables"]:
        return None
    track, name = map(bytes.decode, found.groups())
    try:
        with open(os.path.join(job["workdir"], track, name), "rb") as file:
            gaps = file.read().count(b"PUT YOUR CODE: ")
    except OSError:
        return None
    return (
        gaps
        and f"this job runs {track}/{name}, which still has gaps; for the other track, submit it with -v TRACK=chainer"
    )


def forgotten_variable(job, script):
    """Return a sentence if the job will end at its first lines because it lacks a variable that its script requires
    with ${NAME:?words}, otherwise None."""
    import re

    for name, words in re.findall(rb'^: "\$\{(\w+):\?([^}\n]+)\}"', script, re.MULTILINE):
        if not job["variables"].get(name.decode()):
            return f"this job will end at once, without {name.decode()}: {words.decode(errors='replace')}"
    return None


def _is_here(path):
    """Return whether `path` (PWD, with symbolic links as the user typed them) is the current directory."""
    try:
        return bool(path) and os.path.isabs(path) and os.path.samefile(path, ".")
    except OSError:
        return False


def current_site():
    """Return the site file to use: the file of unfinished jobs, unless HANDSON_SITE names one (see store_job)."""
    from handson.cluster import site
    from handson.pbs import store

    if os.environ.get("HANDSON_SITE"):
        return site.path_of()
    with store.reading() as db:
        return store.site_in_force(db) or site.path_of()


def choose_queue(text, here, server):
    from handson.pbs.pbs_errors import unknown_host, unknown_queue

    queue, _, named = text.partition("@")
    if named and named.split(".")[0] != server:
        raise unknown_host(server, 160)
    queue = queue or here.queue
    if queue not in here.queues:
        raise unknown_queue()
    return queue


def check_user(text, me):
    """Refuse any user but `me` in ``-u user[@host],...``, because jobs run as the user who submits them."""
    from handson.pbs.pbs_errors import bad_user

    if text and me.pw_name not in [item.partition("@")[0] for item in text.split(",")]:
        raise bad_user()


def check_groups(text, here):
    """Check that each of ``group[@host],...`` is one of the site's groups or one of the user's groups."""
    import grp

    from handson.pbs.pbs_errors import bad_group

    for item in filter(None, text.split(",")):
        group = item.partition("@")[0].strip()
        if group in (here.groups or DEFAULT_GROUPS):
            continue
        try:
            number = grp.getgrnam(group).gr_gid
        except KeyError:
            raise bad_group() from None
        if number not in {os.getgid(), os.getegid(), *os.getgroups()}:
            raise bad_group()


def output_file(letter, given, directory, hosts):
    """Return the absolute path of the file that -o or -e names, or None if it is not `given`."""
    from handson.pbs.command_options import output_path

    if letter not in given:
        return None
    path, foreign = output_path(given[letter], directory, hosts)
    if foreign:
        command.say("qsub", f"-{letter} names the host {foreign}, but the output goes to {path} on this machine")
    return path


def choose_shell(text, hosts):
    """Return the shell of ``-S path[@host],...`` for this machine."""
    paths = [item.partition("@") for item in (text or "").split(",") if item]
    here = [path for path, _, host in paths if host.split(".")[0] in hosts]
    return next(iter(here + [path for path, _, host in paths if not host]), None)


def checked(variable, value, kind):
    """Return the value of a variable on the job's nodes, if it has this type (see `resources.JOB`). Raises PBSError."""
    from handson.pbs import resources
    from handson.pbs.pbs_errors import PBSError

    try:
        resources.value_of(kind, value)
    except ValueError as error:
        raise PBSError(f"{variable}: {error}", 2) from None
    return value


def pbs_o_variables(environment, server, queue, directory, me):
    variables = {
        "PBS_O_HOME": environment.get("HOME") or me.pw_dir,
        "PBS_O_HOST": os.uname().nodename,
        "PBS_O_LOGNAME": environment.get("LOGNAME") or me.pw_name,
        "PBS_O_MAIL": environment.get("MAIL") or f"/var/mail/{me.pw_name}",
        "PBS_O_PATH": environment.get("PATH", ""),
        "PBS_O_QUEUE": queue,
        "PBS_O_SHELL": environment.get("SHELL") or me.pw_shell,
        "PBS_O_SYSTEM": os.uname().sysname,
        "PBS_O_WORKDIR": directory,
    }
    return variables | {f"PBS_O_{name}": environment[name] for name in ("LANG", "TZ") if name in environment}


def store_job(job, script):
    """Number the job and store it, with a row for each sub-job of an array, in one transaction. Return the id."""
    from handson.pbs import depend, store
    from handson.pbs.pbs_errors import PBSError

    chosen = job.pop("site")
    with store.transaction() as db:
        in_force = store.site_in_force(db) or chosen
        if in_force != chosen:
            raise PBSError(
                f"jobs of the site {in_force} have not ended: wait for them, delete them, or give {chosen} its own"
                " HANDSON_PBS_HOME",
                2,
            )
        store.set_meta(db, "site", chosen)
        seq = int(store.meta(db, "next", 0))
        store.set_meta(db, "next", seq + 1)
        store.note_number(seq)
        array = job["array"]
        job |= {"seq": seq, "id": f"{seq}[]" if array else str(seq)}
        depend.register(db, job)
        store.put(db, job, script)
        if array:
            indices = range(array["first"], array["last"] + 1, array["step"])
            if len(indices) > LARGEST_ARRAY:
                raise PBSError("Array job exceeds server or queue size limit", 3)
            for index in indices:
                store.put(
                    db,
                    job
                    | {"id": f"{seq}[{index}]", "index": index, "array": None, "state": "Q", "hold": "n", "depend": []},
                )
    return f"{job['id']}.{job['server']}"
