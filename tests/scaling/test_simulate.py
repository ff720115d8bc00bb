"""The simulator of collectives: equal to the formulas where these are exact, and to one event after another where they
are not."""

import heapq

import numpy
import pytest

from handson.scaling import failures, message_times, simulate
from handson.scaling.message_times import Cluster, Link, TopologyError

SIZE = 1e8  # bytes
CLUSTERS = [Cluster(Link(1e-4, 1e9), Link(1e-5, 1e10), per_node) for per_node in (1, 2, 4)]


@pytest.mark.parametrize("algorithm", message_times.ALGORITHMS)
@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: f"{cluster.per_node} a node")
def test_without_stragglers_the_simulation_is_the_formula(algorithm, cluster):
    for ranks in (1, 2, 4, 8, 16, 64, 512):
        if ranks < cluster.per_node or ranks % cluster.per_node:
            continue
        found = simulate.all_reduce(simulate.Topology(cluster, ranks), SIZE, algorithm=algorithm)
        assert found.max() == pytest.approx(message_times.all_reduce(SIZE, ranks, cluster, algorithm), rel=1e-9), ranks


def event_by_event(costs, begin):
    """A ring by a queue of events, each the arrival of a message: the moments at which all ranks have finished."""
    ranks = len(begin)
    rounds, done, arrived, last = 2 * (ranks - 1), [0] * ranks, [[] for _ in range(ranks)], list(begin)
    # the first round's messages
    events = [(begin[rank] + costs[(rank + 1) % ranks], (rank + 1) % ranks) for rank in range(ranks)]
    heapq.heapify(events)
    while events:
        moment, rank = heapq.heappop(events)
        arrived[rank].append(moment)
        while done[rank] < rounds and len(arrived[rank]) > done[rank]:
            last[rank] = max(last[rank] + costs[rank], arrived[rank][done[rank]])
            done[rank] += 1
            if done[rank] < rounds:
                receiver = (rank + 1) % ranks
                heapq.heappush(events, (last[rank] + costs[receiver], receiver))
    return last


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_ring_with_stragglers_and_slow_links_is_that_of_one_event_after_another(ranks):
    random = numpy.random.default_rng(ranks)
    begin, slow = random.uniform(0, 0.2, ranks), {0: 0.25, ranks - 1: 0.5}
    topology = simulate.Topology(CLUSTERS[0], ranks, slow=slow)
    everyone = numpy.arange(ranks)
    costs = topology.seconds(numpy.roll(everyone, 1), everyone, SIZE / ranks)
    assert simulate.all_reduce(topology, SIZE, begin) == pytest.approx(event_by_event(costs.tolist(), begin.tolist()))


@pytest.mark.parametrize("algorithm", message_times.ALGORITHMS)
def test_one_straggler_delays_all_ranks_by_what_it_is_late(algorithm):
    topology = simulate.Topology(CLUSTERS[1], 8)
    begin = numpy.zeros(8)
    prompt = simulate.all_reduce(topology, SIZE, begin, algorithm).max()
    begin[3] = 10
    late = simulate.all_reduce(topology, SIZE, begin, algorithm)
    assert 10 < late.min() and 10 + 0.3 * prompt < late.max() <= 10 + prompt + 1e-9


def test_a_slow_card_slows_the_ring_down_to_it():
    ring = message_times.all_reduce(SIZE, 8, Cluster(Link(0, 1e8)))
    topology = simulate.Topology(Cluster(Link(0, 1e9)), 8, slow={5: 0.1})
    assert simulate.all_reduce(topology, SIZE).max() == pytest.approx(ring)


def test_a_narrow_way_up_costs_many_rings_more_than_one():
    cluster = Cluster(Link(0, 1e9), Link(0, 1e12), 4)
    wide, narrow = (simulate.Topology(cluster, 64, nodes_per_switch=4, oversubscription=ratio) for ratio in (1, 8))
    for algorithm, slower in (("hierarchical", 2), ("two_dimensional", 2), ("tree", 1.5)):
        ratio = (
            simulate.all_reduce(narrow, SIZE, algorithm=algorithm).max()
            / simulate.all_reduce(wide, SIZE, algorithm=algorithm).max()
        )
        assert ratio == pytest.approx(slower, rel=0.05), algorithm


def test_messages_that_share_a_card_share_its_rate():
    topology = simulate.Topology(Cluster(Link(0, 1e9), Link(0, 1e12), 4), 8)
    one = topology.seconds(numpy.array([0]), numpy.array([4]), SIZE)
    four = topology.seconds(numpy.arange(4), numpy.arange(4, 8), SIZE)
    assert four == pytest.approx(4 * one[0])
    apart = simulate.Topology(Cluster(Link(0, 1e9), Link(0, 1e12), 4), 20)
    out, into = (
        apart.seconds(numpy.arange(4), numpy.arange(4, 20, 4), SIZE),
        apart.seconds(numpy.arange(4, 20, 4), numpy.arange(4), SIZE),
    )
    assert [*out, *into] == pytest.approx([4 * one[0]] * 8)


# buckets wait for each other; each has travelled before the next is full
@pytest.mark.parametrize("compute", [0.05, 0.3])
def test_buckets_overlap_as_the_formula_says(compute):
    topology = simulate.Topology(CLUSTERS[0], 8)
    sizes = [SIZE / 10] * 10
    found = simulate.step(topology, sizes, simulate.backward(numpy.full(8, compute), 10)).max() - compute
    durations = [message_times.all_reduce(size, 8, CLUSTERS[0]) for size in sizes]
    assert found == pytest.approx(message_times.exposed(compute, durations), rel=1e-6)


def test_bad_topologies_are_refused():
    with pytest.raises(TopologyError, match="6 ranks do not fill nodes of 4"):
        simulate.all_reduce(simulate.Topology(CLUSTERS[2], 6), SIZE, algorithm="hierarchical")
    with pytest.raises(TopologyError, match="oversubscription of 1 or more"):
        simulate.Topology(CLUSTERS[0], 4, oversubscription=0.5)
    with pytest.raises(TopologyError, match="no node 99 that could be slow: the 4 nodes have the numbers from 0 to 3"):
        simulate.Topology(CLUSTERS[0], 4, slow={99: 0.1})
    with pytest.raises(TopologyError, match="a rate above 0"):
        Link(1e-5, 0)
    with pytest.raises(TopologyError, match="no algorithm 'star': choose from ring, tree"):
        message_times.all_reduce(SIZE, 4, CLUSTERS[0], "star")
    with pytest.raises(TopologyError, match="a moment for each of the 4 ranks"):
        simulate.all_reduce(simulate.Topology(CLUSTERS[0], 4), SIZE, begin=[0, 1])


@pytest.mark.parametrize(("checkpoint", "between", "restart"), [(30, 3600, 60), (120, 1800, 300)])
def test_the_useful_share_is_that_of_a_simulation(checkpoint, between, restart):
    interval = failures.daly(checkpoint, between)
    share = failures.useful_share(interval, checkpoint, between, restart)
    assert share == pytest.approx(failures.simulated_share(interval, checkpoint, between, restart), rel=0.02)


def test_dalys_interval_is_the_best_one_and_youngs_is_near_it():
    between = failures.mean_time(5 * 365 * 86400, 512)  # a node fails once in five years
    intervals = numpy.geomspace(100, 100_000, 400)
    best = max(failures.useful_share(interval, 60, between, 300) for interval in intervals)
    assert failures.useful_share(failures.daly(60, between), 60, between, 300) == pytest.approx(best, abs=1e-4)
    assert failures.useful_share(failures.young(60, between), 60, between, 300) == pytest.approx(best, abs=1e-3)
    assert failures.daly(100, 40) == 40
    often = numpy.linspace(100, 2000, 2000)  # seconds, where a node fails every half hour
    found = often[numpy.argmax([failures.useful_share(interval, 120, 1800) for interval in often])]
    assert failures.daly(120, 1800) == pytest.approx(found, rel=0.02) and failures.young(120, 1800) > 1.1 * found
