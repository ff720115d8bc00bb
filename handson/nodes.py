"""Run a command on a node of the current job: ``python -m handson.nodes NODE COMMAND...``.

The embedded PBS starts the job script with it, ``pbsdsh`` and the launcher agent start everything else with it. A job's nodes
stand in the JSON file that ``HANDSON_NODES`` names: ``{"node1": {"cores": [0, 1]}, ...}``. A node is a group of plain
processes here, told apart by ``HANDSON_NODE`` and pinned to the node's cores; whatever else makes a node belongs in `enter`.
"""

import json
import os
import sys
from pathlib import Path


def job_nodes():
    """The nodes of the job this process belongs to: name -> properties; empty outside an embedded PBS job."""
    path = os.environ.get("HANDSON_NODES")
    return json.loads(Path(path).read_text()) if path else {}


def current_node():
    """The name of the node this process runs on."""
    return os.environ.get("HANDSON_NODE") or os.uname().nodename


def enter(node):
    """Make this process, and whatever it starts, part of `node`. Raises KeyError when the job has no such node."""
    cores = job_nodes()[node]["cores"]
    os.environ["HANDSON_NODE"] = node
    if cores:
        os.sched_setaffinity(0, cores)


def main():
    node, *command = sys.argv[1:]
    try:
        enter(node)
    except KeyError:
        sys.exit(f"handson.nodes: this job has no node {node!r}; its nodes are: {' '.join(job_nodes()) or '(none)'}")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
