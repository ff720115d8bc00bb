"""What the ranks of a run print before they end: a problem of one rank with its name, and one that all ranks have found
only once."""

from datetime import timedelta

from handson.errors import say
from handson.training import rank_watcher

COME = timedelta(seconds=5)  # in which all ranks come to a problem that one has come to, on a busy machine


def say_once(error, comm):
    """Print a sentence with the rank that it is about. One that all ranks have found, rank 0 alone prints; without it,
    the others do.

    No rank ends before rank 0 has printed it: mpiexec ends all ranks with the first one. comm: None before the ranks
    have met.
    """
    if comm is None or not getattr(error, "on_all_ranks", False):
        say(f"{rank_watcher.name()}: {error}")
    elif comm.rank == 0:
        say(error)
        comm.store.set("said", "")
        _come(comm.store, [f"heard by {rank}" for rank in range(1, comm.size)])
    elif _come(comm.store, ["said"]):
        comm.store.set(f"heard by {comm.rank}", "")
    else:
        say(f"{rank_watcher.name()}: {error}")


def _come(store, keys):
    """Whether all these keys come into the store in time."""
    try:
        store.wait(keys, COME)
    except RuntimeError:  # they don't, or rank 0 has ended, and its store with it
        return False
    return True
