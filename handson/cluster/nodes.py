"""Run a command on a node of the current job: ``python -m handson.cluster.nodes NODE COMMAND...``.

The embedded PBS starts the job script with it; ``pbsdsh`` and the launcher agent start all other commands with it. The
JSON file that ``HANDSON_NODES`` names lists a job's nodes: ``{"node1": {"cores": [0, 1], "pid": 3}, ...}``. A node is a
group of processes that are pinned to the node's cores and have its name in ``HANDSON_NODE``. With a "pid", the node
also has its own host name and network (`handson.cluster.virtual_nodes`): those of the process with this number.
"""

import json
import os
import sys
from pathlib import Path

from handson.cluster import virtual_nodes

FIRST_PORT, PORTS = 20000, 10000


def job_nodes():
    """Return the nodes of the current job, {name: properties}; empty outside a job of the embedded PBS, or after its
    end."""
    try:
        return json.loads(Path(os.environ["HANDSON_NODES"]).read_text())
    except (KeyError, FileNotFoundError):
        return {}


def job_processes():
    """Return the number of processes that the job has requested on all its nodes, or None outside a job or if the
    number is unknown."""
    if file := os.environ.get("PBS_NODEFILE"):
        try:
            return len(Path(file).read_text().split())
        except OSError:
            return None
    return int(os.environ["SLURM_NTASKS"]) if os.environ.get("SLURM_NTASKS", "").isdigit() else None


def job_port():
    """Return the first port for the rendezvous of a job's ranks on its first node. It is derived from the job's number,
    so that two jobs rarely share one."""
    job = os.environ.get("PBS_JOBID") or os.environ.get("SLURM_JOB_ID") or str(os.getppid())
    return FIRST_PORT + int("".join(filter(str.isdigit, job.split(".")[0])) or 0) * 16 % PORTS


def current_node():
    """Return the name of the node on which this process runs."""
    return os.environ.get("HANDSON_NODE") or os.uname().nodename


def gpu_of_machine(gpu, count, node=None):
    """Return the number of GPU `gpu` of a node (default: this one) among the machine's `count` GPUs. The virtual nodes
    of a job have different GPUs, as far as there are enough."""
    nodes, node = job_nodes(), node or current_node()
    before = list(nodes)[: list(nodes).index(node)] if node in nodes else ()
    return (sum(len(nodes[name].get("slots", ())) for name in before) + gpu) % count


def meeting_address(world):
    """Return the address at which all ranks of an MPI communicator find this rank: 127.0.0.1 if they are on one host,
    which needs no network, otherwise the host's name. All ranks must call it."""
    host = os.uname().nodename
    return "127.0.0.1" if {*world.allgather(host)} == {host} else host


def become(node, *command):
    """Replace this process with `command` on `node`. Ends with one sentence if there is no such node or command."""
    properties = job_nodes().get(node)
    if properties is None:
        sys.exit(
            f"handson.cluster.nodes: this job has no node {node!r}; its nodes are: {' '.join(job_nodes()) or '(none)'}"
        )
    os.environ["HANDSON_NODE"] = node
    folder = None
    if "private" in properties:  # a strict site's node behaves like a real node
        folder = os.getcwd()
        del os.environ["HANDSON_NODE"], os.environ["HANDSON_NODES"]
    if "pid" in properties:
        command = virtual_nodes.on(properties["pid"], *command, folder=folder)
    try:
        if properties["cores"]:
            os.sched_setaffinity(0, properties["cores"])
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)  # the statuses of a shell


def main():
    if len(sys.argv) < 3:
        sys.exit("handson.cluster.nodes: give a node of this job and a command")
    become(*sys.argv[1:])


if __name__ == "__main__":
    main()
