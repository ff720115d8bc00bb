"""Run the ranks of one group on virtual nodes. Each node has its own sandbox, so ranks on different nodes share neither
files nor memory, and all messages pass through the nodes' limited network."""

import contextlib
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grader.sandbox.client import Outcome, SandboxFault, Server
from grader.sandbox.limits import Limits
from handson import linux
from handson.cluster import virtual_nodes

ENDING = 60  # seconds for the nodes to end, on a busy machine


class Nodes:
    """Context manager with virtual nodes. `address` is the first node's address. Raises SandboxFault."""

    def __init__(self, count, rate, libraries=()):
        """rate: the rate of each node's network, such as "100mbit"; libraries: modules that are loaded before ranks
        start."""
        self.nodes = {f"node{number}": {} for number in range(1, count + 1)}
        self.rate, self.libraries = rate, libraries
        self.address = virtual_nodes.addresses(self.nodes)["node1"]

    def __enter__(self):
        if why := virtual_nodes.why_not():
            raise SandboxFault(why)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            try:
                holder = virtual_nodes.start(self.nodes, self.rate, Path(folder))
            except OSError as error:
                raise SandboxFault(error.strerror) from error
            stack.callback(_end, holder)
            self.processes, self.servers = [], []
            for process, enter in virtual_nodes.networks(holder, self.nodes).values():
                self.processes.append(process)
                self.servers.append(Server(self.libraries, before=tuple(enter)))
                stack.callback(self.servers[-1].stop)
                self.servers[-1].start()
            # otherwise the ranks of one node would wait until the other one has loaded its libraries
            self.run(f"{__name__}:nothing", [], 1, Limits(), None)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        self._stack.close()

    def run(self, function, arguments, ranks, limits, readable):
        """Run like Server.run, with this many ranks on each node, and return the Outcome of all of them."""
        everybody = ranks * len(self.servers)

        def on(place):
            group = place * ranks, everybody
            return self.servers[place].run(function, arguments, ranks, limits, readable, group)

        with ThreadPoolExecutor(len(self.servers)) as threads:
            try:
                of_nodes = list(threads.map(on, range(len(self.servers))))
            except BaseException:
                for server in self.servers:  # otherwise this process would wait for them
                    server.stop()
                raise
        return Outcome(
            [rank for outcome in of_nodes for rank in outcome.ranks],
            sum(outcome.cpu_seconds for outcome in of_nodes),
            max(outcome.seconds for outcome in of_nodes),
            max(outcome.waited_seconds for outcome in of_nodes),
        )

    def bytes_sent(self):
        """Return the bytes that all nodes together have sent so far."""
        return sum(map(linux.bytes_sent, self.processes))


def nothing(rank, ranks):
    """Do nothing: the rank's start shows that its node is ready."""


def _end(holder):
    holder.stdin.close()  # the nodes end with it
    try:
        holder.wait(ENDING)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()
    for pipe in (holder.stdout, holder.stderr):
        pipe.close()
