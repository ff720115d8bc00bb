"""Record which collectives and messages a rank starts with torch.distributed, and whether the rank waits for them: they
are operators of torch, which a TorchDispatchMode sees. Data on other ways, such as files or the ranks' store, are not
recorded."""

import contextlib
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from grader.sandbox.rank import StudentMistake

RECEIVE = "recv_", "recv_any_source_"
SEND_NOTHING = "wait_tensor", "_wrap_tensor_autograd"
# c10d operators with these words in their names have the result as their first argument
INPUT_SECOND = "gather", "scatter", "alltoall"


class Collectives(TorchDispatchMode):
    """Record what a rank sends: messages [to, a copy of the tensor], collectives [name, bytes], and `works`: the
    results of both, a Work, or the tensor of a functional collective."""

    def __init__(self):
        super().__init__()
        self.messages, self.collectives, self.works = [], [], []
        self.waited = []  # the works for which the rank has waited
        self._in_flight = []  # (work, name, tensors, copies of them) for which the rank has not waited

    @contextlib.contextmanager
    def noted(self, all_ended=False, all_sent=False):
        """Context manager that records the calls of torch.distributed inside its block.

        Raises StudentMistake if a tensor is changed while it is being sent; with `all_ended`, if a collective is never
        waited for; and with `all_sent`, if a message is never waited for, by its sender or its receiver: gloo cancels a
        message whose work is dropped, even if an answer to it would arrive.
        """
        with contextlib.ExitStack() as patches:
            for name in ("wait", "is_completed", "get_future"):
                patches.enter_context(mock.patch.object(dist.Work, name, self._ending(name, getattr(dist.Work, name))))
            patches.enter_context(self)
            yield self
        names = [name for _, name, *_ in self._in_flight if name not in ("send", "receive")]
        if all_ended and names:
            raise StudentMistake(
                f"your code never waits for the {names[0]} (async_op=True), so its result may not be there yet: call"
                " `wait()` on the work that it returns"
            )
        if all_sent and any(name == "receive" for _, name, *_ in self._in_flight):
            raise StudentMistake(
                "your code never waits for `expect`, so the message may not be there yet: call `wait()` on the handle"
                " that `expect` returns"
            )
        if all_sent and any(name == "send" for _, name, *_ in self._in_flight):
            raise StudentMistake(
                "your code never waits for `send`, so the message may never leave, or leave with numbers that the"
                " tensor gets later: call `wait()` on the work that `send` returns"
            )

    def is_in_flight(self, work):
        """Return whether a work has not been waited for."""
        return any(one is work for one, *_ in self._in_flight)

    def hand_over(self):
        """Return [name, bytes] of the collectives since the last call."""
        sent = [*map(list, self.collectives), *(["send", tensor.nbytes] for _, tensor in self.messages)]
        self.messages, self.collectives, self.works = [], [], []
        return sent

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        found, name = operator(*args, **(kwargs or {})), operator.__name__.partition(".")[0]
        if "c10d" not in operator.namespace:
            return found
        if name == "wait_tensor":
            self.waited.append(args[0])
        elif name in RECEIVE:
            self._in_flight.append((dist.Work.unbox(found), "receive", [], []))
        elif name not in SEND_NOTHING:
            self._note(name, args, operator.namespace == "c10d", found)
        return found

    def _note(self, name, args, has_work, found):
        sent = _tensors(args[1 if has_work and any(part in name for part in INPUT_SECOND) else 0])
        copies = [tensor.detach().clone() for tensor in sent] if name == "send" else []
        if name == "send":
            self.messages.append([args[2], *copies])
        else:  # c10d's name is allreduce_, that of functional collectives all_reduce
            name = name.strip("_").replace("all_reduce", "allreduce").replace("all_gather", "allgather")
            self.collectives.append([name, sum(tensor.nbytes for tensor in sent)])
        if has_work:  # the object that the rank gets
            found = dist.Work.unbox(found[-1] if isinstance(found, tuple) else found)
            self._in_flight.append((found, name, sent, copies))
        self.works.append(found)

    def _ending(self, name, original):
        """Return a replacement of a method of Work with which a rank waits."""

        def call(work, *arguments, **options):
            for one, _, tensors, copies in self._in_flight:
                if one is work and copies and not all(map(torch.equal, tensors, copies)):
                    raise StudentMistake(
                        "your code changes a tensor while it is being sent, so the result depends on timing: call"
                        " `wait()` on the work that `send` returns first"
                    )
            value = original(work, *arguments, **options)
            if value is not False:
                self._in_flight = [one for one in self._in_flight if one[0] is not work]
            if name == "wait":
                self.waited.append(work)
            return value

        return call


def _tensors(thing):
    """Return the tensors in an argument of an operator."""
    if isinstance(thing, torch.Tensor):
        return [thing]
    return [tensor for one in thing for tensor in _tensors(one)] if isinstance(thing, (list, tuple)) else []
