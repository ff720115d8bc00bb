"""The time that ranks in a box get: on a busy machine, seconds without a core count for no limit. The clock here is
made."""

import socket
from contextlib import closing

import pytest

from grader.sandbox import BUSY, Limits, watch_ranks
from grader.verdict import DEADLOCK, TIMEOUT

LIMITS = Limits(cpu_seconds=4, wall_seconds=5, waiting_seconds=3)


@pytest.fixture
def watched(monkeypatch):
    """A function that watches one rank, which never ends: (why it was stopped, after how many seconds). activity:
    seconds -> what watch._activity would return then."""

    class Clock:
        seconds = 0.0

        def monotonic(self):
            self.seconds += 0.1
            return self.seconds

    clock = Clock()
    monkeypatch.setattr(watch_ranks, "time", clock)
    monkeypatch.setattr(watch_ranks, "TICK", 0)

    def watched(activity):
        monkeypatch.setattr(watch_ranks, "_activity", lambda: activity(clock.seconds))
        monkeypatch.setattr(watch_ranks, "_memory", lambda little, exactly: 0)
        rank, (control, init) = watch_ranks._Rank(0), socket.socketpair()
        with closing(rank.channel), closing(rank.theirs), closing(control), closing(init):
            why, *_ = watch_ranks._watch([rank], control, LIMITS)
        return why, clock.seconds

    return watched


def test_a_rank_with_a_twentieth_of_a_core_gets_its_whole_cpu_time(watched):
    why, seconds = watched(lambda now: (0.05 * now, True, True))
    assert why == TIMEOUT
    assert 0.9 * LIMITS.cpu_seconds / 0.05 < seconds < LIMITS.cpu_seconds / 0.05 + BUSY * watch_ranks.GRACE


def test_a_rank_that_gets_no_core_at_all_is_given_up(watched):
    why, seconds = watched(lambda now: (0.0, True, True))
    assert why == TIMEOUT
    assert BUSY * LIMITS.wall_seconds < seconds < BUSY * (LIMITS.wall_seconds + 2 * watch_ranks.GRACE)


def test_a_rank_with_a_core_of_its_own_ends_with_its_cpu_time(watched):
    why, seconds = watched(lambda now: (now, True, True))
    assert why == TIMEOUT and seconds < LIMITS.cpu_seconds + 2 * watch_ranks.GRACE


def test_a_rank_that_only_waits_for_a_disk_has_no_more_than_the_time_of_a_run(watched):
    why, seconds = watched(lambda now: (0.0, True, False))
    assert why == TIMEOUT and seconds < LIMITS.wall_seconds + 2 * watch_ranks.GRACE


def test_a_rank_that_sleeps_counts_as_waiting_for_another(watched):
    why, seconds = watched(lambda now: (0.0, False, False))
    assert why == DEADLOCK and seconds < Limits().still_seconds + 3 * watch_ranks.GRACE


def test_threads_that_only_wake_up_now_and_then_hide_no_deadlock_on_a_busy_machine(watched):
    why, _ = watched(lambda now: (0.01 * now, int(4 * now) % 3 > 0, int(4 * now) % 3 > 0))
    assert why == DEADLOCK


def test_a_rank_with_little_of_a_core_that_is_found_waiting_is_in_no_deadlock(watched):
    why, _ = watched(lambda now: (0.07 * now, int(4 * now) % 3 > 0, int(4 * now) % 3 > 0))
    assert why == TIMEOUT
