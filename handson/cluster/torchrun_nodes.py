"""torchrun on all nodes of a job: ``python -m handson torchrun`` calls it on the first node, where the job script
runs."""

import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from handson.errors import TrackError

PORT = 29400  # torchrun's own choice, on the first node
KILLED = (137, -9)  # statuses of what was killed, through a shell and without
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # ranks that start again must not meet at the address of the dead ones
}


def on_all_nodes(words):
    """Run torchrun with these words on each node of the job. All ranks meet on this node. A node that was killed starts
    its torchrun once more, when it is back. Returns whether all ended well. Raises TrackError outside a job.

    A node that says nothing for 6 seconds, three times the keep-alive interval, is gone for the others.
    """
    if "PBS_NODEFILE" not in os.environ:
        raise TrackError("PBS_NODEFILE names no file with the nodes of a job: run this in a job script, by qsub")
    nodes = list(dict.fromkeys(Path(os.environ["PBS_NODEFILE"]).read_text().split()))
    job = os.environ.get("PBS_JOBID", "torchrun")
    command = ["torchrun", "--nnodes", str(len(nodes)), "--rdzv-backend", "c10d", "--rdzv-id", job]
    command += ["--rdzv-endpoint", f"{os.uname().nodename}:{PORT}", "--rdzv-conf", "keep_alive_interval=2", *words]
    here = SETTINGS | {name: os.environ[name] for name in ("PATH", "PBS_JOBID") if name in os.environ}
    variables = [f"{name}={value}" for name, value in here.items()]
    line = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(['env', *variables, *command])}"
    with ThreadPoolExecutor(len(nodes)) as threads:
        return not any(threads.map(lambda node: _on_node(node, line), nodes))


def _on_node(node, line):
    status = subprocess.call(["handson-agent", node, line])
    return subprocess.call(["handson-agent", node, line]) if status in KILLED else status
