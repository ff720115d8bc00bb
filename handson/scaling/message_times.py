"""The time of an all-reduce by formula: a message of n bytes takes alpha + n / beta (Hockney 1994), on the slowest link
of each round.

Ranks are numbered node by node, as mpiexec places them by default. `handson.scaling.simulate` sends the same messages
one by one.
"""

import math
import re
from dataclasses import dataclass

from handson.errors import OneSentence

FRAMES = 1448 / 1514  # share of a rate that TCP leaves for data: 66 of 1,514 bytes of an Ethernet frame are headers
UNITS = {"mbit": 10**6, "gbit": 10**9}
BUCKET = 25 * 2**20  # bytes, as in torch's DistributedDataParallel
DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes per element in a message
BACKWARD = 2 / 3  # share of a step's computation: backward computes two products for each product of forward


class TopologyError(OneSentence, ValueError):
    """A network or a number of ranks is impossible."""


@dataclass(frozen=True)
class Link:
    """A link for messages: seconds until the first byte arrives, then bytes/s."""

    latency: float
    rate: float

    def __post_init__(self):
        if self.latency < 0 or not self.rate > 0:
            raise TopologyError(
                f"a link needs a rate above 0 bytes/s and a latency of at least 0 s, not {self.rate:g} bytes/s and"
                f" {self.latency:g} s"
            )

    def seconds(self, size):
        """Return the seconds of a message of `size` bytes."""
        return self.latency + size / self.rate


@dataclass(frozen=True)
class Cluster:
    """Nodes with `per_node` ranks each: the NIC of each node, and the link between two ranks of a node."""

    between: Link
    within: Link = Link(2e-5, 10e9)
    per_node: int = 1


def rate(text):
    """Return the bytes/s of data in ``25gbit`` or ``100mbit``, without headers. Raises TopologyError."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(mbit|gbit)", str(text).strip().lower())
    if not found:
        raise TopologyError(f"the network {text!r} is not a rate: give a number with mbit or gbit, such as 25gbit")
    if float(found[1]) == 0:
        raise TopologyError(f"the network {text!r} carries nothing: give a rate above 0, such as 25gbit")
    return float(found[1]) * UNITS[found[2]] / 8 * FRAMES


def nodes(ranks, per_node):
    """Return the number of nodes of `ranks` ranks. Raises TopologyError if the ranks do not fill the nodes."""
    if ranks > per_node and ranks % per_node:
        fitting = ranks // per_node * per_node
        raise TopologyError(
            f"{ranks} workers do not fill nodes of {per_node}: give {fitting} or {fitting + per_node} in --workers, or"
            " another --per-node"
        )
    return max(1, ranks // per_node)


def ring(size, ranks, cluster):
    """Return the seconds of 2 (p - 1) rounds in which each rank passes n / p bytes on; one rank of each node sends to
    another node (Patarasuk and Yuan, 2009)."""
    links = [cluster.within] * (min(ranks, cluster.per_node) > 1) + [cluster.between] * (ranks > cluster.per_node)
    return 2 * (ranks - 1) * max((link.seconds(size / ranks) for link in links), default=0)


def tree(size, ranks, cluster):
    """Return the seconds of a reduction to rank 0 and a broadcast, each in log2 p rounds of whole messages: first
    within nodes, then between them."""
    inside, outside = min(ranks, cluster.per_node), nodes(ranks, cluster.per_node)
    rounds = math.ceil(math.log2(inside)), math.ceil(math.log2(outside))
    return 2 * (rounds[0] * cluster.within.seconds(size) + rounds[1] * cluster.between.seconds(size))


def hierarchical(size, ranks, cluster):
    """Return the seconds if each node adds up its gradients on one rank, these ranks form a ring, and each broadcasts
    the sum in its node: ChainerMN's hierarchical."""
    inside, outside = min(ranks, cluster.per_node), nodes(ranks, cluster.per_node)
    return 4 * (inside - 1) * cluster.within.seconds(size / inside) + 2 * (outside - 1) * cluster.between.seconds(
        size / outside
    )


def two_dimensional(size, ranks, cluster):
    """Return the seconds if each rank of a node sums up one part, and all ranks of a node form rings at the same time,
    which share its NIC: ChainerMN's two_dimensional."""
    inside, outside = min(ranks, cluster.per_node), nodes(ranks, cluster.per_node)
    shared = Link(cluster.between.latency, cluster.between.rate / inside)
    return 2 * (inside - 1) * cluster.within.seconds(size / inside) + 2 * (outside - 1) * shared.seconds(
        size / inside / outside
    )


ALGORITHMS = {"ring": ring, "tree": tree, "hierarchical": hierarchical, "two_dimensional": two_dimensional}


def all_reduce(size, ranks, cluster, algorithm="ring"):
    """Return the seconds of an all-reduce of `size` bytes over `ranks` ranks, or 0 for one rank. Raises
    TopologyError."""
    nodes(ranks, cluster.per_node)
    return named(algorithm, ALGORITHMS)(size, ranks, cluster) if ranks > 1 else 0.0


def named(algorithm, algorithms):
    """Return the function of this name. Raises TopologyError."""
    if algorithm not in algorithms:
        raise TopologyError(f"there is no algorithm {algorithm!r}: choose from {', '.join(algorithms)}")
    return algorithms[algorithm]


def buckets(size, bucket=BUCKET):
    """Return the bytes of each bucket for gradients of `size` bytes: all equal, none larger than `bucket`."""
    count = max(1, math.ceil(size / bucket))
    return [size / count] * count


def exposed(computation, durations, overlap=True, double_buffering=False):
    """Return the seconds of communication that computation does not hide in a step of `computation` seconds.

    durations: the seconds of each bucket's all-reduce. Backward fills the buckets in this order, at equal intervals.
    Without overlap, the all-reduces start after backward. With double buffering, the all-reduces of a step run during
    the next step.
    """
    total = sum(durations)
    if double_buffering:
        return max(0.0, total - computation)
    if not overlap:
        return total
    begin, end = computation * (1 - BACKWARD), 0.0
    for number, duration in enumerate(durations, 1):
        end = max(end, begin + (computation - begin) * number / len(durations)) + duration
    return end - computation
