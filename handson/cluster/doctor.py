"""``python -m handson doctor``: run the troubleshooting steps of docs/launching.md until one is broken.

Outside a job, the doctor checks this machine. Inside a job, it also checks the connections to the job's other nodes, up
to communication between ranks. Every step has a time limit. Nothing is changed; a real PBS gets a held job, which is
deleted at once.
"""

import concurrent.futures
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from handson.cluster import launcher, nodes, site, virtual_nodes
from handson.language import marked, speak, translated
from handson.pbs import command
from handson.words import aligned

LIMIT = 60  # seconds for a command of a step on this machine, even a busy one
FAR_LIMIT = 120  # seconds for a command on other nodes
LOADING = 300  # seconds to import torch
TORCHES = (2, 8), (2, 15)  # the oldest and the newest that `make test-torches` has used
DELAY = 5  # seconds after which another node sees a file that one node wrote

MPIS = (  # name, what its version text contains, family: an mpiexec works with the libraries of its own family
    ("Intel MPI", r"Intel\(R\) MPI", "hydra"),
    ("MVAPICH", r"MVAPICH", "hydra"),
    ("Open MPI", r"Open ?MPI|OpenRTE|PRRTE|prterun", "openmpi"),
    ("MPICH", r"MPICH|HYDRA", "hydra"),
    ("Slurm's wrapper", r"mpiexec\.slurm", "slurm"),
)
# each rank writes its line at once, so that lines do not mix
RANK = "import os; from mpi4py import MPI; os.write(1, b'rank %d %d\\n' % (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size))"
HOST = """
import array, fcntl, json, socket, struct
name = socket.gethostname()
def of(interface):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            return socket.inet_ntoa(fcntl.ioctl(s, 0x8915, struct.pack("256s", interface.encode()))[20:24])
        except OSError:
            return None
try:
    address = socket.gethostbyname(name)
except OSError:
    address = None
interfaces = {i: of(i) for _, i in socket.if_nameindex() if of(i)}
print(json.dumps({"name": name, "address": address, "interfaces": interfaces}))
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5).sendall(b'x')"
MEET = """
import os
from mpi4py import MPI
from handson.cluster import network
world = MPI.COMM_WORLD
largest = network.gloo_all_reduce(world).largest(float(world.rank))
os.write(1, b"met %d\\n" % (largest + 1))
network.end_together(world)
"""


OWN_ADDRESS = "import socket; socket.getaddrinfo(socket.gethostname(), None)"


class Broken(Exception):
    """A step is broken: the message says what is wrong, and `cure` what to do."""

    def __init__(self, what, cure):
        super().__init__(what)
        self.cure = cure


class Note(str):
    """A finding of a step that is not an error, but that the user should know."""


def doctor(say=speak):
    """Run the steps, and `say` one line for each. Return the exit status: 0 if all are ok, 1 if one is broken."""
    hosts = job_hosts()
    for name, rung in HERE + (IN_JOB if hosts else ()):
        try:
            found = rung(*([hosts] if (name, rung) in IN_JOB else []))
        except Broken as error:
            say(f"BROKEN  {name}: {error}")
            say(f"        What to do: {error.cure}.")
            say("        The later steps were not tried. docs/launching.md describes all steps.")
            return 1
        say(f"{'note' if isinstance(found, Note) else 'ok':<7} {name}: {found}")
    if not hosts:
        say(
            "        This is not a job: to check the connections between the nodes of a job, submit"
            " `qsub -j oe jobs/pbs/run_doctor.sh`."
        )
    return 0


def summary(say=speak):
    """Print the machine's resources in a few lines. This takes less than a second, because notebooks call it."""
    cores, gpus, (system, program), why = (
        len(os.sched_getaffinity(0)),
        _gpus(),
        command.batch_system(),
        virtual_nodes.why_not(),
    )
    rows = [
        (translated("cores"), str(cores)),
        (translated("GPUs"), str(gpus or translated("none, so virtual ones: a virtual GPU is a core"))),
    ]
    try:
        here = site.load()
        machine = f"site {here.name}, with {here.nodes} nodes of {here.gpus} GPUs, queue {here.queue}"
    except site.SiteError as error:
        machine = str(error)
    name = {"embedded": "the embedded PBS", "pbs": "PBS", "slurm": "Slurm"}[system]
    shown = f"{translated(name)} ({program})" if program else translated(name)
    rows.append((translated("batch system"), f"{shown}; {translated(machine)}"))
    if system == "embedded":
        found = marked(f"no: {why}") if why else "yes: each node of a job has a host name and a network of its own"
    else:
        found = f"none: the nodes of {name} are real ones"
    for line in aligned(rows[0], [*rows[1:], (translated("virtual nodes"), translated(found))]):
        say(line)


def _gpus():
    """Return the number of GPUs that programs find here, without asking CUDA, which takes seconds."""
    import pynvml

    try:
        pynvml.nvmlInit()
        found = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return 0
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return found if chosen is None else min(found, len(list(filter(None, chosen.split(",")))))


def ask(*words, limit=LIMIT, env=None):
    """Run a command, by default in this environment. Return (status, output, errors); status is None if the command
    took longer than `limit` seconds and was killed."""
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env=env,
    )
    try:
        out, errors = process.communicate(timeout=limit)
        return process.returncode, out, errors
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate(timeout=LIMIT)
        return None, out, errors


def last_words(out, errors):
    """Return the line in the output of a failed command that most likely gives the reason."""
    lines = [line.strip() for line in (errors.strip() or out.strip()).splitlines() if line.strip(" =-\n")]
    telling = [line for line in lines if re.search("error|unable|cannot|denied|refused|not found|no such", line, re.I)]
    return (telling or lines or ["it said nothing"])[0][:300]


def job_hosts():
    """Return the hosts of the current job, in order; [] outside a job."""
    if file := os.environ.get("PBS_NODEFILE"):
        try:
            return list(dict.fromkeys(Path(file).read_text().split()))
        except OSError:
            return []
    if os.environ.get("SLURM_JOB_NODELIST") and shutil.which("scontrol"):
        return ask("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"])[1].split()
    return []


# Steps on this machine ----------------------------------------------------------


def python():
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        raise Broken(
            f"this is Python {sys.version.split()[0]}",
            "make the environment with Python 3.11, 3.12 or 3.13: make PYTHON=python3.12 environment",
        )
    found = shutil.which("python")
    if not found or Path(found).parent.resolve() != Path(sys.executable).parent.resolve():
        raise Broken(
            f"`python` on PATH is {found or 'missing'}, not {sys.executable}, so job scripts would use that one",
            f"source {Path(sys.executable).parent}/activate",
        )
    return f"{sys.version.split()[0]} in {sys.prefix}"


def packages():
    status, out, errors = ask(
        sys.executable,
        "-c",
        "import torch, mpi4py, numpy; print(torch.__version__, torch.cuda.device_count())",
        limit=LOADING,
    )
    if status:
        raise Broken(
            f"the packages cannot be imported ({(errors.strip().splitlines() or ['?'])[-1]})", "make environment"
        )
    if status is None:
        raise Broken(
            f"importing torch takes more than {LOADING} s",
            "see whether the disk that holds the environment is overloaded or far away",
        )
    torch, gpus = out.split()
    cores = len(os.sched_getaffinity(0))
    device = (
        f"{gpus} GPU{'s' * (gpus != '1')}"
        if gpus != "0"
        else f"no GPUs, so virtual ones: {cores} core{'s' * (cores > 1)}"
    )
    found = f"torch {torch}, mpi4py {importlib.metadata.version('mpi4py')}; {device}"
    return Note(f"{found}; {odd}") if (odd := untested(torch)) else found


def untested(torch):
    """Return a remark on a version of torch that the course was not tested with, such as "2.4.1+cu124", or None for a
    tested version."""
    oldest, newest = (".".join(map(str, version)) for version in TORCHES)
    version = tuple(map(int, re.findall(r"[0-9]+", torch)[:2]))
    if TORCHES[0] <= version <= TORCHES[1]:
        return None
    cure = "the course may fail there" if version < TORCHES[0] else "if something fails, try an older one"
    return f"the course was tested with torch {oldest} to {newest}: {cure}"


def _mpi_of(text):
    """Return (name of the MPI, its family) for the output `text` of a version command."""
    return next(((name, kind) for name, sign, kind in MPIS if re.search(sign, text)), ("unknown", None))


def _every(program):
    """Return all programs of this name on PATH, in the order of PATH."""
    folders = {}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        folders.setdefault(os.path.realpath(folder or "."), folder or ".")
    return [path for folder in folders.values() if (path := shutil.which(program, path=folder))]


def _site_mpi():
    """Return ("site" or "environment", the site file's choice of mpiexec; the path of that file)."""
    path = site.path_of()
    try:
        return site.load(path).mpi, path
    except site.SiteError:
        return "environment", path


def mpi():
    """Check that the first mpiexec on PATH, the library of mpi4py and the site file agree."""
    programs = _every("mpiexec")
    if not programs:
        raise Broken("there is no mpiexec on PATH", f"source {Path(sys.executable).parent}/activate")
    described = {program: _mpi_of("\n".join(map(str, ask(program, "--version")))) for program in programs}
    status, library, errors = ask(sys.executable, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())")
    if status != 0:
        raise Broken(
            f"mpi4py cannot load an MPI library ({last_words(library, errors)})",
            "make environment; or load the site's MPI module",
        )
    first = programs[0]
    (name, kind), (library_name, library_kind) = described[first], _mpi_of(library)
    wanted, file = _site_mpi()
    own = Path(first).parent.resolve() == Path(sys.executable).parent.resolve()
    others = [f"{program} ({described[program][0]})" for program in programs[1:]]
    if wanted == "site" and own:
        raise Broken(
            f"the site file {file} requires the site's own MPI, but the environment's mpiexec, {first}, comes before it"
            " on PATH",
            "remove the environment's (pip uninstall mpich) and load the site's MPI module, so that mpi4py finds it"
            + (f"; later on PATH: {', '.join(others)}" if others else ""),
        )
    if None not in (kind, library_kind) and kind != library_kind:
        raise Broken(
            f"mpiexec is {name}'s ({first}), but mpi4py uses {library_name}: each of N ranks would report rank 0 of 1",
            f"put the mpiexec of {library_name} first on PATH (that of the environment is in"
            f' {Path(sys.executable).parent}); in job scripts, eval "$(handson-launcher)" makes mpi4py use the library'
            " of an Open MPI",
        )
    shadowed = f"; not used, because they are later on PATH: {', '.join(others)}" if others else ""
    return f"{first} is {name}'s, and mpi4py uses {library_name}{shadowed}"


def virtual():
    why = virtual_nodes.why_not()
    return (
        Note(f"{why} (jobs of several nodes still run here, as plain processes)")
        if why
        else "can be made here: unshare, ip and tc work"
    )


def batch():
    programs = _every("qsub")
    if not programs:
        raise Broken("there is no qsub on PATH", f"source {Path(sys.executable).parent}/activate")
    system, program = command.batch_system()
    if system == "embedded":
        return f"qsub is {programs[0]}, the embedded PBS"
    version = ["sbatch" if system == "slurm" else program, "--version"]  # Slurm's qsub does not report its own version
    status, out, errors = ask(*version)
    if status is None:
        raise Broken(
            f"{' '.join(version)} has not answered after {LIMIT} s",
            "see whether the batch system's server can be reached: qstat",
        )
    told = ((out + errors).strip().splitlines() or ["no version told"])[0][:100]
    return f"qsub is {program}, {'Slurm' if system == 'slurm' else 'a real batch system'}'s ({told})"


def variables():
    """Check that a real PBS accepts a job of this site, and passes variables of the shell to it."""
    system, _ = command.batch_system()
    if system != "pbs" or "PBS_JOBID" in os.environ:
        return "checked only where a real PBS accepts jobs, outside jobs"
    try:
        here, value = site.load(), "a b, c=d"
    except site.SiteError as error:
        raise Broken(str(error), "correct the site's file") from None
    words = ["-h", "-q", here.queue, *(["-W", f"group_list={here.group}"] if here.group else [])]
    sent = os.environ | {"HANDSON_BY_NAME": value, "HANDSON_BY_ALL": "all"}
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write("#!/bin/sh\n")
        script.flush()
        status, out, errors = ask("qsub", *words, "-V", "-v", "HANDSON_BY_NAME", script.name, env=sent)
    if status != 0:
        raise Broken(
            f"qsub refuses a job of the site {here.name} ({last_words(out, errors)})",
            "put the right queue and group into the site's file (docs/your_cluster.md), and choose it: python -m"
            " handson site use NAME",
        )
    job = out.split()[-1]
    found = ask("qstat", "-f", job)[1].replace("\n\t", "")
    ask("qdel", job)
    # PBS escapes the commas of a value with backslashes
    if f"HANDSON_BY_NAME={value}" not in found.replace("\\", ""):
        raise Broken(
            "`qsub -v NAME` does not send a variable of the shell with a job as it is",
            "give the value on the command line, without commas: qsub -v OPTIONS='--epoch 2' ...",
        )
    by_name = "`qsub -v NAME,NAME` sends variables of the shell, with any value"
    if "HANDSON_BY_ALL=all" not in found:
        return Note(f"{by_name}; `qsub -V` sends none, as in OpenPBS 23.06.06, and says nothing")
    return by_name


def start_here():
    # inside a job, mpiexec would use the job's nodes
    no_job = {name: value for name, value in os.environ.items() if not name.startswith(("PBS_", "SLURM"))}
    status, out, errors = ask("mpiexec", "-n", "2", sys.executable, "-c", RANK, env=no_job)
    sizes = re.findall(r"rank (\d+) (\d+)", out)
    if status is None:
        raise Broken(
            f"mpiexec -n 2 had not started two ranks after {LIMIT} s",
            "see whether this host's name has an address (getent hosts $(hostname))",
        )
    if sizes and {size for _, size in sizes} == {"1"}:
        raise Broken(
            f"mpiexec started {len(sizes)} ranks, and each reports rank 0 of 1: it does not belong to mpi4py's MPI",
            "put the mpiexec of mpi4py's MPI first on PATH: the step `mpi` names both",
        )
    if sorted(sizes) != [("0", "2"), ("1", "2")]:
        words = last_words(out, errors)
        cure = "run `mpiexec -n 2 hostname` by hand, and look at its first error"
        if "host address" in words:
            cure = "add this host's name to /etc/hosts; if all ranks run on this host, export HYDRA_IFACE=lo also helps"
        raise Broken(f"mpiexec -n 2 does not start two ranks ({words})", cure)
    started = "mpiexec -n 2 starts ranks 0 and 1 of 2"
    if ask(sys.executable, "-c", OWN_ADDRESS)[0] != 0:
        return Note(
            f"{started}; this host's name, {socket.gethostname()}, has no address, and torchrun would wait for one: add"
            " the name to /etc/hosts, or give `torchrun --standalone` the option --local-addr localhost"
        )
    return started


# Steps between the nodes of a job -----------------------------------------------


def _agent():
    return os.path.join(os.path.dirname(sys.executable), "handson-agent")


def _there(host, script, *, limit=FAR_LIMIT):
    """Run a shell script on a host of the job through the agent, as mpiexec would. Return the same as `ask`; with
    pbsdsh, the script's output goes into the job's output."""
    return ask(_agent(), host, script, limit=limit)


def _on(host, *words):
    """Run a command on a host of the job, and read its output from files in this folder, or in the home folder if this
    one is read-only. Return the same as `ask`."""
    shared = os.getcwd() if os.access(os.getcwd(), os.W_OK) else Path.home()
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=shared) as folder:
        place = shlex.quote(f"{folder}/answer")
        status, _, errors = _there(
            host,
            f"{shlex.join(words)} >{place}.out 2>{place}.err; echo $? >{place}.new && mv {place}.new {place}.status",
        )
        answer = Path(folder, "answer.status")
        end = time.monotonic() + DELAY
        while status == 0 and not answer.exists() and time.monotonic() < end:
            os.listdir(folder)  # makes NFS read the folder again
            time.sleep(0.1)
        if answer.exists():
            return (
                int(answer.read_text()),
                answer.with_suffix(".out").read_text(errors="replace"),
                answer.with_suffix(".err").read_text(errors="replace"),
            )
    if status is None:
        return None, "", errors
    return status or 1, "", f"it left no answer in the folder {os.getcwd()}\n{errors}"


def _on_all(hosts, *words):
    """Run a command on all hosts at once. Return {host: result of `ask`}."""
    return _each(hosts, lambda host: _on(host, *words))


def _each(hosts, run):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return dict(zip(hosts, pool.map(run, hosts)))


def _way(host):
    if "pid" in nodes.job_nodes().get(host, {}):
        return "virtual node"
    return "plain process" if host in nodes.job_nodes() else launcher.way_to(host, os.environ)[0]


def setting(hosts):
    """Check that mpiexec is configured to use the agent."""
    if len(hosts) > 1 and not os.environ.get("HYDRA_LAUNCHER_EXEC", "").endswith("handson-agent"):
        raise Broken(
            "mpiexec does not know how to reach the other nodes",
            'write eval "$(handson-launcher)" into the job script, before mpiexec',
        )
    return (
        f"{len(hosts)} node{'s' * (len(hosts) > 1)} ({', '.join(hosts)}), reached by:"
        f" {', '.join(dict.fromkeys(map(_way, hosts)))}"
    )


def reach(hosts):
    for host, (status, out, errors) in _each(hosts, lambda host: _there(host, "uname -n >/dev/null")).items():
        if status is None:
            raise Broken(
                f"{_way(host)} has not run a command on {host} after {FAR_LIMIT} s",
                f"try it by hand in a job: handson-agent {host} hostname",
            )
        if status:
            raise Broken(
                f"{_way(host)} cannot run a command on {host} ({last_words(out, errors)})",
                f"try it by hand in a job: handson-agent {host} hostname",
            )
    return "a command runs on each of them"


def environment(hosts):
    program = f"import os, handson; os.chdir({os.getcwd()!r})"
    for host, (status, out, errors) in _on_all(hosts, sys.executable, "-c", program).items():
        if status is None or status:
            words = (errors.strip().splitlines() or ["it said nothing"])[-1]
            raise Broken(
                f"{host} cannot use this environment, {sys.prefix}, or this folder ({words})",
                "put both on a file system that all nodes share, or create the environment at the same path"
                " on every node",
            )
    return f"{sys.prefix} and this folder exist on each of them"


def address(hosts):
    """Check the address to which each host's name resolves: it must not be a loopback address, and this host must be
    able to resolve it."""
    found = {}
    for host, (status, out, errors) in _on_all(hosts, sys.executable, "-c", HOST).items():
        if status != 0:
            raise Broken(
                f"{host} does not report its addresses ({last_words(out, errors)})",
                f"try it by hand in a job: handson-agent {host} hostname",
            )
        found[host] = json.loads(out)
    if len({answer["name"] for answer in found.values()}) == 1:
        return (
            Note("all nodes are one host, so ranks use its loopback interface")
            if len(hosts) > 1
            else "one host: ranks use its loopback interface"
        )
    for host, answer in found.items():
        interfaces = (
            ", ".join(f"{name} {where}" for name, where in answer["interfaces"].items() if name != "lo") or "none"
        )
        if answer["address"] is None or answer["address"].startswith("127."):
            what = f"resolves to {answer['address']}, a loopback address" if answer["address"] else "has no address"
            first = next((name for name in answer["interfaces"] if name != "lo"), "eth0")
            raise Broken(
                f"on {host} its own name {answer['name']} {what}, which ranks on other hosts cannot use (its"
                f" interfaces: {interfaces})",
                "correct /etc/hosts there (Debian puts the name on a line 127.0.1.1), or export"
                f" GLOO_SOCKET_IFNAME={first} HYDRA_IFACE={first} in the job script",
            )
        try:
            seen = socket.gethostbyname(host)
        except OSError:
            raise Broken(
                f"{host} has no address on {os.uname().nodename}",
                f"add it to /etc/hosts or DNS; its interfaces: {interfaces}",
            ) from None
        if seen not in answer["interfaces"].values():
            raise Broken(
                f"{host} is {seen} here, but has no such address itself (its interfaces: {interfaces})",
                "correct /etc/hosts or DNS",
            )
    return ", ".join(f"{host} {answer['address']}" for host, answer in found.items())


def ports(hosts):
    """Check that the other hosts reach a port that this host opens, as rank 0 would."""
    others = [host for host in hosts if host != nodes.current_node()]
    if len(hosts) == 1:
        return "only one node, so there is no connection to check"
    here = os.uname().nodename
    with socket.create_server(("", 0), backlog=64) as server:
        port = server.getsockname()[1]
        for host, (status, out, errors) in _on_all(others, sys.executable, "-c", CONNECT, here, str(port)).items():
            if status != 0:
                words = (errors.strip().splitlines() or ["no answer"])[-1]
                raise Broken(
                    f"{host} cannot connect to port {port} of {here} ({words})",
                    "a firewall is between them: ask which ports are open, and name those in the job script (torch:"
                    " MASTER_PORT=29500; MPICH: MPIR_CVAR_CH3_PORT_RANGE=low:high, and UCX_TCP_PORT_RANGE=low-high)",
                )
    return f"a port of {here} can be reached from {', '.join(others)}"


def _over_all(hosts, code):
    """Run a program with mpiexec, with one rank for each line of the job's node file, or for each host without one.
    Return the number of ranks, and what `ask` returns."""
    file = os.environ.get("PBS_NODEFILE")
    where = ["-hostfile", file] if file else ["-hosts", ",".join(hosts)]
    lines = Path(file).read_text().split() if file else hosts
    return len(lines), *ask("mpiexec", "-n", str(len(lines)), *where, sys.executable, "-c", code, limit=FAR_LIMIT * 2)


def start_there(hosts):
    ranks, status, out, errors = _over_all(hosts, RANK)
    sizes = sorted((int(rank), int(size)) for rank, size in re.findall(r"rank (\d+) (\d+)", out))
    if status is None:
        raise Broken(
            f"mpiexec -n {ranks} over all nodes had not ended after {FAR_LIMIT * 2} s",
            "export HYDRA_DEBUG=1 and run it by hand in a job",
        )
    if sizes != [(rank, ranks) for rank in range(ranks)]:
        raise Broken(
            f"mpiexec -n {ranks} over all nodes does not start as many ranks ({last_words(out, errors)})",
            "run `mpiexec -n 2 -hostfile $PBS_NODEFILE hostname` by hand in a job",
        )
    return f"mpiexec starts {ranks} ranks over all nodes"


def meet(hosts):
    ranks, status, out, errors = _over_all(hosts, MEET)
    if status is None or re.findall(r"met (\d+)", out) != [str(ranks)] * ranks:
        raise Broken(
            f"{ranks} ranks do not connect over gloo ({'no answer' if status is None else last_words(out, errors)})",
            "name the network's interface in the job script, export GLOO_SOCKET_IFNAME=...; the step `addresses` lists"
            " them",
        )
    return f"{ranks} ranks compare a number over gloo"


HERE = (
    ("python", python),
    ("packages", packages),
    ("virtual nodes", virtual),
    ("batch system", batch),
    ("mpi", mpi),
    ("mpiexec here", start_here),
    ("variables", variables),
)
IN_JOB = (
    ("launcher", setting),
    ("other nodes", reach),
    ("environment there", environment),
    ("addresses", address),
    ("ports", ports),
    ("mpiexec there", start_there),
    ("ranks meet", meet),
)
