"""Set up mpiexec to reach the other nodes of a job, on every kind of system.

A job script contains ``eval "$(handson-launcher)"``: mpiexec (MPICH's or Open MPI's) then calls ``handson-agent HOST
COMMAND`` instead of ssh. The agent uses the available mechanism: a node of the embedded PBS, PBS's pbsdsh, Slurm's
srun, or ssh.
"""

import fcntl
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import termios
import time
from pathlib import Path

from handson import linux
from handson.cluster import nodes, slow_network

AGENTS = (  # variables that name the program with which an mpiexec reaches other nodes
    "HYDRA_LAUNCHER_EXEC",
    "OMPI_MCA_plm_rsh_agent",  # Open MPI up to 4
    "PRTE_MCA_plm_ssh_agent",  # Open MPI from 5 on
)
LIMIT = 60  # seconds for mpiexec to print its version, on a busy machine
# pbsdsh, which itself ends with status 0, prints this if a task has failed
STATUS = re.compile(rb"(?:\S*/)?pbsdsh: task \w+ exit status (\d+)\s*")
# ssh options with a separate value: user, port, ...
WITH_VALUE = ("-l", "-p", "-o", "-i", "-F", "-J", "-E", "-S")


def main():
    """Print the shell commands that make mpiexec use the agent, and MPICH use the network between virtual nodes. In a
    Slurm job without a node file, also print commands that create one, and remove it at the end of the script."""
    agent = os.path.join(sysconfig.get_path("scripts"), "handson-agent")
    job_nodes = nodes.job_nodes()
    slow_network.warn(os.environ, job_nodes)
    virtual = any("pid" in node for node in job_nodes.values())
    variables = {"UCX_TLS": "tcp,self"} if virtual else on_this_host() if job_nodes else {}
    variables |= {"HYDRA_LAUNCHER": "ssh"} | {name: agent for name in AGENTS}
    if uses_openmpi(shutil.which("mpiexec")):
        variables |= for_openmpi(os.environ)
    if "SLURM_JOB_NODELIST" in os.environ and "PBS_NODEFILE" not in os.environ:
        variables["PBS_NODEFILE"] = file = slurm_node_file(os.environ)
        print(f"trap {shlex.quote(f'rm -f {shlex.quote(file)}')} EXIT")
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    # mpiexec passes its own environment to all ranks, but the value of this variable differs between nodes
    print("unset HANDSON_NODE")


def on_this_host():
    """Return settings for MPICH's mpiexec with ranks on one host, which other programs use, too.

    mpiexec waits forever if another program connects to its port and sends too little. Clients of ZeroMQ do so: they
    return to a port after its server, such as a notebook's kernel, has ended, and the port may by then be mpiexec's. So
    mpiexec gets a port that the kernel does not assign automatically.
    """
    first = 10_000 + 20 * (os.getpid() % 1000)  # different for runs that start at the same time
    return {"HYDRA_IFACE": "lo", "MPIEXEC_PORT_RANGE": f"{first}:32000"}  # lo: host names need not resolve


def slurm_node_file(environment):
    """Create a file like the one that PBS_NODEFILE names: one line per task of a Slurm job, with the name of its host.
    Return its path."""
    shown = subprocess.run(
        ["scontrol", "show", "hostnames", environment["SLURM_JOB_NODELIST"]],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    if shown.returncode:
        sys.exit(f"handson-launcher: Slurm does not name the hosts of this job: {shown.stderr.strip()}")
    tasks = []  # per host; Slurm writes "2(x3),1" for two tasks on each of three hosts, and one on another
    for count, hosts in re.findall(r"(\d+)(?:\(x(\d+)\))?", environment["SLURM_TASKS_PER_NODE"]):
        tasks += [int(count)] * int(hosts or 1)
    with tempfile.NamedTemporaryFile("w", prefix=f"nodes-{environment['SLURM_JOB_ID']}-", delete=False) as file:
        file.writelines(f"{host}\n" * count for host, count in zip(shown.stdout.split(), tasks, strict=True))
    return file.name


def refusing(directory):
    """Return variables for a job on several virtual nodes. Without the line ``eval "$(handson-launcher)"``, mpiexec
    then calls a program in `directory` (a Path) that prints this line, instead of ssh, which cannot reach these
    nodes."""
    program = directory / "ssh"
    sentence = (
        'mpiexec cannot reach the other nodes of this job: write the line eval "$(handson-launcher)" into the job'
        " script, before mpiexec"
    )
    program.write_text(
        f"#!/bin/sh\necho '{sentence}' >&2\nsleep 2  # mpiexec drops what it has not read by the end\nexit 255\n"
    )
    program.chmod(0o755)
    return {name: str(program) for name in AGENTS} | {"HYDRA_LAUNCHER": "ssh"}


def uses_openmpi(mpiexec):
    """Return whether the program `mpiexec` is Open MPI's."""
    try:
        told = subprocess.run(
            [mpiexec or "mpiexec", "--version"], capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return re.search(r"Open ?MPI|OpenRTE|PRRTE|prterun", told.stdout) is not None


def for_openmpi(environment):
    """Return settings with which Open MPI starts ranks as MPICH does, with the job's environment and on all of its
    cores, and with which mpi4py uses its library."""
    here = ("HANDSON_NODE", "HOME", "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "TMPDIR", "_")  # differ between nodes
    names = [
        name
        for name in environment
        if re.fullmatch(r"\w+", name) and name not in here and not name.startswith(("OMPI_", "PMIX_", "PRTE_"))
    ]
    return {
        "MPI4PY_MPIABI": "openmpi",
        "OMPI_MCA_mca_base_env_list": ";".join([*names, "MPI4PY_MPIABI"]),
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # inside a virtual node, an ordinary user appears as root
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def agent():
    """Replace this process with a command on HOST: ``handson-agent [ssh's options] HOST COMMAND...``. COMMAND is for a
    shell, as with ssh."""
    words = sys.argv[1:]
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in WITH_VALUE and words:
            words.pop(0)
    if len(words) < 2:
        end("give a host and a command")
    host, command = words[0], " ".join(words[1:])
    if host in nodes.job_nodes():
        nodes.become(host, "sh", "-c", command)
    reach = way_to(host, os.environ)
    if not shutil.which(reach[0]):
        end(f"cannot reach {host}, because {reach[0]} is not on PATH here")
    if reach[0] == "pbsdsh":
        sys.exit(status_of_pbsdsh([*reach, command]))
    os.execvp(reach[0], [*reach, command])


def status_of_pbsdsh(words):
    """Run pbsdsh, and return the status of its task as a shell reports it: 128 + N if signal N has killed it. TERM is
    passed on to pbsdsh, which then ends its task."""
    pbsdsh = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: linux.prctl(linux.DIE_WITH_PARENT, signal.SIGTERM),
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: pbsdsh.terminate())
    status = 0
    for line in pbsdsh.stdout:
        if found := STATUS.fullmatch(line):
            status = int(found[1])
        else:
            sys.stderr.buffer.write(line)
            sys.stderr.flush()
    # PBS adds 256 to the number of a signal
    return pbsdsh.wait() or (128 + status - 256 if status > 256 else status)


def end(sentence):
    """End with a sentence, as soon as mpiexec has read it: mpiexec drops unread output when its agent ends."""
    print(f"handson-agent: {sentence}", file=sys.stderr, flush=True)
    latest = time.monotonic() + LIMIT
    while (
        stat.S_ISFIFO(os.fstat(2).st_mode)
        and any(fcntl.ioctl(2, termios.FIONREAD, bytes(4)))
        and time.monotonic() < latest
    ):
        time.sleep(0.01)
    sys.exit(1)


def way_to(host, environment):
    """Return the command that runs its last argument, a shell command, on `host`. environment: the job's
    environment."""
    if host in ("localhost", os.uname().nodename):
        return ["sh", "-c"]
    if environment.get("SLURM_JOB_ID"):  # checked first, because Slurm may also set the variables of PBS
        return [
            "srun",
            "--overlap",
            "--export=ALL",
            "--cpu-bind=none",
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={host}",
            "/bin/sh",
            "-c",
        ]
    in_pbs = environment.keys() >= {"PBS_JOBID", "PBS_NODEFILE"}
    if in_pbs and shutil.which("pbsdsh", path=environment.get("PATH")):
        lines = Path(environment["PBS_NODEFILE"]).read_text().split()
        if host not in lines:
            end(f"this job has no host {host}; its hosts are: {' '.join(dict.fromkeys(lines))}")
        # the position in the node file, because no release of OpenPBS has -h HOST
        return ["pbsdsh", "-n", str(lines.index(host)), "--", "/bin/sh", "-c"]
    return ["ssh", "-x", "-o", "BatchMode=yes", host]
