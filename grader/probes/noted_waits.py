"""Note for which message or collective of torch.distributed a rank waits, so that a check can say which ranks wait for
each other."""

import functools
import weakref

import torch.distributed as dist

from grader.sandbox import rank_waits
from grader.sandbox.rank_waits import RECEIVE, SEND

MESSAGES = {"send": SEND, "recv": RECEIVE, "recv_anysource": RECEIVE}
COLLECTIVES = {  # methods of a process group -> the function of torch.distributed that calls it
    **{name: name for name in ("broadcast", "reduce", "gather", "scatter", "reduce_scatter", "barrier")},
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
}
ROOTED = "broadcast", "reduce", "gather", "scatter"
_started = weakref.WeakKeyDictionary()  # work for which the rank has not waited -> (what, the other rank)


@functools.cache
def install():
    """Note the waits of this process from now on."""
    for name, what in (MESSAGES | COLLECTIVES).items():
        setattr(dist.ProcessGroup, name, _noting_start(name, what, getattr(dist.ProcessGroup, name)))
    dist.Work.wait = _noting_wait(dist.Work.wait)


def _noting_start(name, what, original):
    @functools.wraps(original)
    def method(group, *arguments, **options):
        work = original(group, *arguments, **options)
        if work is not None:
            _started[work] = what, _other_rank(group, name, arguments)
        return work

    return method


def _other_rank(group, name, arguments):
    """Return the receiver, the sender or the root, as a rank of all ranks; or None."""
    if name in ("send", "recv"):  # (tensors, rank, tag)
        other = arguments[1]
    else:  # the options come last
        other = getattr(arguments[-1], "rootRank", None) if name in ROOTED else None
    return None if other is None else dist.get_process_group_ranks(group)[other]


def _noting_wait(original):
    @functools.wraps(original)
    def wait(work, *arguments, **options):
        if noted := _started.pop(work, None):
            rank_waits.note(*noted, [source for what, source in _started.values() if what == RECEIVE])
        try:
            return original(work, *arguments, **options)
        finally:
            rank_waits.note()

    return wait
