"""The machine that the embedded PBS presents: the nodes of its site, distributed over the cores of this machine."""

import math
import os
from collections import namedtuple

from handson.pbs import resources

# `mem` and `gpu_memory` are in kb; None means no limit. `cores` lists the core of each slot (virtual GPU or CPU) of the
# node; slots share cores if there are more slots than cores
Node = namedtuple("Node", "name ncpus ngpus mem cores gpu_memory", defaults=[None])


def server_name():
    """Return the server's name in job ids: the machine's short hostname."""
    return os.uname().nodename.split(".")[0]


def nodes(site):
    """Return a `Node` for each node of a `handson.cluster.site.Site`."""
    usable = sorted(os.sched_getaffinity(0))
    # slots of a node; virtual GPU i of node k has slot k * width + i, and slots get cores in turn
    width = max(site.gpus, site.ncpus)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024  # the memory of this machine in kb
    mem = memory // site.nodes if site.mem is None else site.mem
    gpu_memory = resources.value_of("memory", site.gpu_memory) if site.gpu_memory else math.inf
    gpu_memory = None if gpu_memory == math.inf else -(-gpu_memory // 1024)
    return tuple(
        Node(
            f"{site.node_name}{k + 1}",
            site.ncpus,
            site.gpus,
            mem,
            tuple(usable[(k * width + i) % len(usable)] for i in range(width)),
            gpu_memory,
        )
        for k in range(site.nodes)
    )
