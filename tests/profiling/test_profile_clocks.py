"""Clocks of different nodes: what collectives show of their difference is corrected, whatever else the ranks do."""

import made_profiles as made
import pytest

from handson.profiling import analysis, rank_clocks
from handson.profiling.timeline import STEP


def two_ranks(ahead, hosts=("node1", "node2"), late=7.0, latency=0.02):
    """Two ranks of which the second comes `late` (ms) to every all-reduce and sees its end `latency` later; clock
    `ahead` (ns)."""
    ranks = []
    for rank in (0, 1):
        events = []
        for number in range(6):
            begin, ready = 40 * number, 40 * number + 20 + late * rank
            events += [
                made.step(number, begin, begin + 40),
                ("compute", begin, ready),
                ("communication", ready, begin + 32 + latency * rank),
            ]
        ranks.append(made.timeline(rank, events, host=hosts[rank], ahead=ahead * rank))
    return ranks


@pytest.mark.parametrize("ahead", [0, 3_000_000, -250_000_000, 7_200_000_000_000, 123])
def test_clocks_of_two_nodes_are_set_alike(ahead):
    ranks = two_ranks(ahead)
    offsets = rank_clocks.align(ranks)
    assert offsets[0] == 0 and offsets[1] == pytest.approx(-ahead, abs=50_000)
    assert ranks[1].begin[ranks[1].kind == STEP][0] == pytest.approx(ranks[0].begin[0], abs=50_000)
    [_, one] = analysis.shares(made.run(*ranks))
    [zero, _] = analysis.shares(made.run(*ranks))
    assert zero.share("waiting") == pytest.approx(7 / 40, abs=0.002)
    assert one.share("waiting") == pytest.approx(0, abs=0.002)


def test_one_machine_has_one_clock():
    ranks = two_ranks(2_000_000, hosts=("node1", "node1"))
    assert rank_clocks.align(ranks) == {0: 0, 1: 0}


def test_a_correction_lets_no_collective_end_before_all_have_begun_it():
    """Rank 1 mostly hears late of an end, so that the difference of ends misleads; what must hold limits it."""
    ranks = []
    for rank in (0, 1):
        events = []
        for number in range(6):
            at, heard = 40 * number, 15 * rank if number else 0
            events += [made.step(number, at, at + 40), ("communication", at + 18 - 10 * rank, at + 18.1 + heard)]
        ranks.append(made.timeline(rank, events, host=f"node{rank}"))
    assert abs(rank_clocks.align(ranks)[1]) <= 0.1 * made.MS
    both = rank_clocks.find(ranks)
    assert (both.end.min(axis=1) >= both.begin.max(axis=1)).all()


def test_collectives_that_not_all_ranks_have_tell_nothing():
    zero, one = two_ranks(0)
    one.name[(one.kind == rank_clocks.COMMUNICATION) & (one.begin > one.begin[0] + 200 * made.MS)] = one.names.index(
        "compute"
    )
    assert rank_clocks.find([zero, one]).step == list(range(5))


@pytest.mark.parametrize("name", ["gloo:send", "gloo:recv", "ncclDevKernel_SendRecv", "MPI_Isend"])
def test_messages_between_two_ranks_are_no_collectives(name):
    """Two stages of a pipeline have as many of each, but the first message that a rank sends is not the first one that
    another one sends."""
    ranks = [
        made.timeline(
            rank, [made.step(0, 0, 10), ("communication", 1 + 4 * rank, 2 + 4 * rank, name)], host=f"node{rank}"
        )
        for rank in range(2)
    ]
    assert rank_clocks.find(ranks).name == [] and rank_clocks.align(ranks) == {0: 0, 1: 0}
