"""What a rank sends is noted where it leaves the process."""

import contextlib
from unittest import mock

import torch
import torch.distributed as dist

from grader.box.rank import Wrong

COLLECTIVES = (
    "allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce", "allreduce_coalesced", "alltoall",
    "alltoall_base", "broadcast", "gather", "reduce", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "scatter",
)  # fmt: skip


class Wire:
    """Notes what a rank gives to its process group: messages [to, numbers, bytes], and collectives [name, bytes]."""

    def __init__(self):
        self.messages, self.collectives, self.works = [], [], []
        self.on_the_way = []  # (work, name, tensors, copies of them) of all that nobody has waited for

    @contextlib.contextmanager
    def noted(self, all_ended=False):
        """Note the calls of torch.distributed's process group inside this block: every way of communicating goes through it.

        Raises Wrong if a tensor is changed while it is being sent, and with `all_ended` if nobody waits for a collective."""
        with contextlib.ExitStack() as patches:
            for name in ("send", *COLLECTIVES):
                if hasattr(dist.ProcessGroup, name):
                    patches.enter_context(mock.patch.object(dist.ProcessGroup, name, self._noting(name)))
            for name in ("wait", "get_future", "is_completed"):
                patches.enter_context(mock.patch.object(dist.Work, name, self._ending(getattr(dist.Work, name))))
            yield self
        for work, *_ in list(self.on_the_way):
            self._check(work)
        names = [name for _, name, _, _ in self.on_the_way if name != "send"]
        self.on_the_way = []
        if all_ended and names:
            raise Wrong(f"nobody waits for the {names[0]} (async_op=True): what it gives may not be there yet, which is a matter of chance")

    def _ending(self, original):
        def call(work, *arguments, **options):
            self._check(work)
            value = original(work, *arguments, **options)
            if value is not False:  # it is still on the way, is_completed says
                self.on_the_way = [one for one in self.on_the_way if one[0] is not work]
            return value

        return call

    def _check(self, work):
        for one, name, tensors, copies in self.on_the_way:
            if one is work and name == "send" and not all(map(torch.equal, tensors, copies)):
                raise Wrong("a tensor is changed while it is being sent: wait for what `send` returns first, else what arrives is a matter of chance")

    def _noting(self, name):
        original = getattr(dist.ProcessGroup, name)

        def call(group, *arguments, **options):
            sent = _first_tensors(arguments[1] if "gather" in name or "scatter" in name else arguments[0]) if arguments else []
            size = sum(tensor.numel() * tensor.element_size() for tensor in sent)
            if name == "send":
                self.messages.append([int(arguments[1]), sum(tensor.numel() for tensor in sent), size])
            else:
                self.collectives.append([name, size])
            copies = [tensor.detach().clone() for tensor in sent] if name == "send" else []
            self.works.append(original(group, *arguments, **options))
            self.on_the_way.append((self.works[-1], name, sent, copies))
            return self.works[-1]

        return call

    def hand_over(self):
        """[name, bytes] of what was sent since the last call."""
        sent = [*map(list, self.collectives), *(["send", size] for _, _, size in self.messages)]
        self.messages, self.collectives, self.works = [], [], []
        return sent


def _first_tensors(thing):
    """The tensors in an argument of a process group's method."""
    if isinstance(thing, torch.Tensor):
        return [thing]
    return [tensor for one in thing for tensor in _first_tensors(one)] if isinstance(thing, (list, tuple)) else []
