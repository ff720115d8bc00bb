"""Start torchrun on all nodes of a job. ``python -m handson torchrun`` calls it on the first node, where the job script
runs."""

import os
import shlex
import socket
import subprocess
import time

from handson.cluster import slow_network
from handson.cluster.doctor import job_hosts
from handson.cluster.nodes import job_nodes, job_port
from handson.errors import TrackError

KILLED = (137, -9)  # statuses of a killed program, through a shell and without
GRACE = 20  # seconds that the other nodes have to end by themselves after one has failed
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # restarted ranks must not use the address of dead ranks
}


def on_all_nodes(words):
    """Run torchrun with these arguments on each node of the job, and return whether all ended well. The rendezvous is
    on this node. A node that was killed starts its torchrun once more when it is back. Raises TrackError outside a job.

    With the variable KILL_NODE, the processes on the last node end after the first checkpoint, as in a power cut (see
    checkpoints.remove_old). During the rendezvous, a node that sends nothing for 6 seconds, three keep-alive intervals,
    counts as lost.
    """
    nodes = job_hosts()
    if not nodes:
        raise TrackError("PBS_NODEFILE names no file with the nodes of a job: run this in a job script, with qsub")
    slow_network.warn(os.environ, job_nodes())
    job = os.environ.get("PBS_JOBID", "torchrun")
    command = ["python", "-m", "handson.pytorch.torchrun_of_node"]
    command += ["--nnodes", str(len(nodes)), "--rdzv-backend", "c10d", "--rdzv-id", job]
    command += ["--rdzv-endpoint", f"{os.uname().nodename}:{_free(job_port())}"]
    command += ["--rdzv-conf", "keep_alive_interval=2", *words]
    dies = nodes[-1] if os.environ.get("KILL_NODE") else None
    places = dict.fromkeys(nodes, "other") | {nodes[0]: "first"}  # see launch.no_restart
    agents = {node: _start(node, command, places[node], dies=node == dies) for node in nodes}
    back, failed, end = set(), False, None
    while agents:
        for node, agent in list(agents.items()):
            status = agent.poll()
            if status in KILLED and node not in back and not failed:
                back.add(node)
                agents[node] = _start(node, command, places[node])
            elif status is not None:
                failed = failed or status != 0
                del agents[node]
        if failed and end is None:
            end = time.monotonic() + GRACE
        if failed and time.monotonic() > end:
            for agent in agents.values():
                agent.terminate() if time.monotonic() < end + GRACE else agent.kill()
        time.sleep(0.1)
    return not failed


def _start(node, command, place, dies=False):
    """Start torchrun on a node."""
    here = SETTINGS | {"HANDSON_TORCHRUN": place, "HANDSON_KILL_NODE": "1" if dies else ""}
    here |= {name: os.environ[name] for name in ("PATH", "PBS_JOBID") if name in os.environ}
    settings = [f"{name}={value}" for name, value in here.items()]
    line = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(['env', *settings, *command])}"
    return subprocess.Popen(["handson-agent", node, line])


def _free(port):
    """Return the first unused port from `port` on. At a port of another job, torchrun would join that job."""
    while True:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return port
        port += 1
