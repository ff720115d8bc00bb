"""Simulated all-reduces, message by message, in networks of nodes and switches for which there is no formula: a slow
link, switches with a narrow uplink, stragglers, buckets that become ready one after another.

A rank starts its part of a round when it has finished the last one and its neighbour's message has arrived. So all
times are maxima and sums of earlier ones (max-plus algebra), and NumPy computes a round for all ranks at once. Messages
of the same round that share a card or an uplink share its rate evenly.
"""

from dataclasses import dataclass, field

import numpy

from handson.scaling.message_times import Cluster, TopologyError, named


@dataclass
class Topology:
    """Nodes of equal size, below switches of equal size, which one core switch connects.

    oversubscription: the rate of all nodes of a switch divided by the rate of its uplink to the core. slow: node ->
    remaining share of its card's rate, such as {3: 0.1}.
    """

    cluster: Cluster
    ranks: int
    nodes_per_switch: int | None = None  # with None, all nodes are below one switch
    oversubscription: float = 1.0
    slow: dict = field(default_factory=dict)

    def __post_init__(self):
        if self.ranks < 1:
            raise TopologyError(f"a topology of {self.ranks} ranks cannot be: give at least one")
        self.node = numpy.arange(self.ranks) // self.cluster.per_node
        self.nodes = int(self.node[-1]) + 1
        below = self.nodes_per_switch or self.nodes
        if self.oversubscription < 1 or below < 1 or any(not 0 < share <= 1 for share in self.slow.values()):
            raise TopologyError(
                "a topology has at least one node below a switch, an oversubscription of 1 or more, and shares of slow"
                " links above 0 and up to 1"
            )
        if unknown := [node for node in self.slow if not 0 <= node < self.nodes]:
            raise TopologyError(
                f"there is no node {unknown[0]} that could be slow: the {self.nodes} nodes have the numbers from 0 to"
                f" {self.nodes - 1}"
            )
        self.switch = numpy.arange(self.nodes) // below
        self.card = numpy.full(self.nodes, float(self.cluster.between.rate))
        for node, share in self.slow.items():
            self.card[node] *= share
        self.up = below * self.cluster.between.rate / self.oversubscription

    def seconds(self, senders, receivers, size):
        """Return the seconds of each message of `size` bytes, if all are sent at once from `senders` to `receivers`
        (arrays of ranks)."""
        source, target = self.node[senders], self.node[receivers]
        far = source != target
        times = numpy.where(far, self.cluster.between.latency, self.cluster.within.latency).astype(float)
        rates = numpy.full(len(times), float(self.cluster.within.rate))
        out, into = numpy.bincount(source[far], minlength=self.nodes), numpy.bincount(target[far], minlength=self.nodes)
        rates[far] = numpy.minimum(
            self.card[source[far]] / out[source[far]], self.card[target[far]] / into[target[far]]
        )
        crossing = self.switch[source] != self.switch[target]
        if crossing.any():
            count = int(self.switch[-1]) + 1
            leaving = numpy.bincount(self.switch[source[crossing]], minlength=count)[self.switch[source[crossing]]]
            entering = numpy.bincount(self.switch[target[crossing]], minlength=count)[self.switch[target[crossing]]]
            rates[crossing] = numpy.minimum(rates[crossing], self.up / numpy.maximum(leaving, entering))
        return times + size / rates


def _rotate(begin, costs, rounds):
    """Return the times after `rounds` rounds of a ring, in which each rank waits for the message of the previous rank.
    Arrays (..., p), p ranks in order; costs: seconds of the message that each rank receives."""
    now = numpy.empty((*begin.shape[:-1], begin.shape[-1] + 1))
    now[..., 1:] = begin
    after = now[..., 1:]
    scratch = numpy.empty_like(after)
    for _ in range(rounds):
        now[..., 0] = now[..., -1]
        numpy.maximum(now[..., :-1], after, out=scratch)
        numpy.add(scratch, costs, out=after)
    return now[..., 1:].copy()


def ring(topology, size, begin):
    """Return the times (s) at which each rank has the sum, as arrays like `begin`, the times at which each rank has its
    gradients."""
    ranks = numpy.arange(topology.ranks)
    return _rotate(
        begin, topology.seconds(numpy.roll(ranks, 1), ranks, size / topology.ranks), 2 * (topology.ranks - 1)
    )


def tree(topology, size, begin):
    """Return the same for a binomial tree to rank 0 and back, within nodes first."""
    now, pairs = begin.copy(), _pairs(topology)
    for children, parents in pairs:
        now[parents] = numpy.maximum(now[parents], now[children]) + topology.seconds(children, parents, size)
    for children, parents in reversed(pairs):
        costs = topology.seconds(parents, children, size)
        now[children] = now[parents] + costs
        now[parents] += costs
    return now


def _pairs(topology):
    """Return [(children, parents), ...] of each round up: first among the ranks of a node, then among the nodes' first
    ranks."""
    levels, each = [], min(topology.ranks, topology.cluster.per_node)
    for count, stride in ((each, 1), (topology.nodes, each)):
        group = numpy.arange(count)
        step = 1
        while step < count:
            parents = group[: count - step : 2 * step] * stride
            inside = (
                parents if stride > 1 or each == 1 else (parents + each * numpy.arange(topology.nodes)[:, None]).ravel()
            )
            levels.append((inside + step * stride, inside))
            step *= 2
    return levels


def hierarchical(topology, size, begin):
    """Return the same for a sum on the first rank of each node, a ring of these ranks, and a broadcast within each
    node."""
    each, nodes = _grid(topology)
    leaders = numpy.arange(nodes) * each
    now = _within(topology, size / each, begin.reshape(nodes, each), each - 1).max(axis=1)  # reduce-scatter
    now = now + _to_leader(topology, size, each)
    now = _rotate(now, topology.seconds(numpy.roll(leaders, 1), leaders, size / nodes), 2 * (nodes - 1))
    now = now + _to_leader(topology, size, each)  # the leader hands out parts
    now = _within(topology, size / each, numpy.repeat(now[:, None], each, axis=1), each - 1)
    return now.ravel()


def two_dimensional(topology, size, begin):
    """Return the same for a reduce-scatter within each node, simultaneous rings between nodes for each part, and an
    all-gather within each node."""
    each, nodes = _grid(topology)
    now = _within(topology, size / each, begin.reshape(nodes, each), each - 1)
    ranks = numpy.arange(topology.ranks).reshape(nodes, each)
    costs = topology.seconds(numpy.roll(ranks, 1, axis=0).ravel(), ranks.ravel(), size / each / nodes).reshape(
        nodes, each
    )
    now = _rotate(numpy.ascontiguousarray(now.T), numpy.ascontiguousarray(costs.T), 2 * (nodes - 1)).T
    return _within(topology, size / each, now, each - 1).ravel()


def _grid(topology):
    """Return (ranks per node, nodes). Raises TopologyError if the ranks do not fill the nodes."""
    each = min(topology.ranks, topology.cluster.per_node)
    if topology.ranks % each:
        raise TopologyError(f"{topology.ranks} ranks do not fill nodes of {each}: give a multiple of {each}")
    return each, topology.nodes


def _within(topology, size, begin, rounds):
    """Simulate rounds of a ring within each node; begin (nodes, ranks per node)."""
    return _rotate(begin, numpy.full(begin.shape, topology.cluster.within.seconds(size)), rounds)


def _to_leader(topology, size, each):
    """Return the seconds in which the other ranks of a node send their parts to its first rank, one after another."""
    return (each - 1) * topology.cluster.within.seconds(size / each)


ALGORITHMS = {"ring": ring, "tree": tree, "hierarchical": hierarchical, "two_dimensional": two_dimensional}


def all_reduce(topology, size, begin=None, algorithm="ring"):
    """Return the times (s) at which each rank has the sum of `size` bytes; begin: when each rank has its gradients, 0
    by default. Raises TopologyError."""
    begin = numpy.zeros(topology.ranks) if begin is None else numpy.asarray(begin, float)
    if begin.shape != (topology.ranks,):
        raise TopologyError(
            f"`begin` has the shape {begin.shape}: give a moment for each of the {topology.ranks} ranks"
        )
    return named(algorithm, ALGORITHMS)(topology, size, begin) if topology.ranks > 1 else begin


def step(topology, buckets, ready, algorithm="ring"):
    """Return the times at which each rank has the sums of all buckets. The all-reduces of a rank run one after another,
    as on one NCCL stream.

    buckets: bytes of each, in the order of backward. ready: (ranks, buckets), the times at which backward has filled
    each bucket of each rank, so stragglers have later times.
    """
    done = numpy.zeros(topology.ranks)
    for number, size in enumerate(buckets):
        done = all_reduce(topology, size, numpy.maximum(done, ready[:, number]), algorithm)
    return done


def backward(compute, buckets, forward=1 / 3):
    """Return ready (ranks, buckets) for `step`: backward fills the buckets at equal intervals, after the share
    `forward` of each rank's seconds `compute`."""
    shares = forward + (1 - forward) * numpy.arange(1, buckets + 1) / buckets
    return numpy.asarray(compute, float)[:, None] * shares
