"""What a rank gives to torch.distributed is noted, and whether anybody waits for it: calls of process groups, of their
backends, and the operators of functional collectives. What goes another way, as through files or the ranks' store, is
not."""

import contextlib
import re
from unittest import mock

import torch
import torch.distributed as dist

from grader.sandbox.rank import StudentMistake

COLLECTIVES = (
    "allgather",
    "_allgather_base",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "barrier",
    "monitored_barrier",
)
GROUPS = dist.ProcessGroup, torch._C._distributed_c10d.Backend
OPERATORS = torch._ops.OpOverloadPacket, torch._ops.OpOverload  # the classes of all in torch.ops
# operators in the name spaces of torch.distributed that do something else
SENDS_NOTHING = re.compile("recv|wait|wrap|check")
QUESTIONS = {
    dist.Work: ("wait", "synchronize", "is_completed", "get_future"),
    torch._C.Future: ("wait", "value", "done", "then"),
}


class Wire:
    """Notes what a rank gives to its process group: messages [to, a copy of the tensor], collectives [name, bytes], and
    what is returned for both: works, or the tensor of a functional collective.

    futures: whether a future has to be asked, or returned, before its work counts as waited for; if not, it is enough
    to take it, since DistributedDataParallel waits for what a hook gives it.
    """

    def __init__(self, futures=True):
        self.messages, self.collectives, self.works = [], [], []
        self.on_the_way = []  # (work, name, tensors, copies of them) of all that nobody has waited for
        self.waited = []  # the works that somebody has waited for, or has found over
        # futures: (future, its works); works of which somebody has asked if they are over
        self._must_ask, self._futures, self._asked = futures, [], []

    @contextlib.contextmanager
    def noted(self, all_ended=False, all_sent=False):
        """Note what is given to torch.distributed inside this block.

        Raises StudentMistake if a tensor is changed while it is being sent, with `all_ended` if nobody waits for a
        collective, and with `all_sent` if nobody waits for a message: gloo breaks off a message whose work is dropped,
        even where an answer to it would come."""
        with contextlib.ExitStack() as patches:
            for kind in GROUPS:
                for name in ("send", *COLLECTIVES):
                    if hasattr(kind, name):
                        patches.enter_context(mock.patch.object(kind, name, self._noting(name, getattr(kind, name))))
            for kind in OPERATORS:
                patches.enter_context(mock.patch.object(kind, "__call__", self._noting_operator(kind.__call__)))
            for kind, names in QUESTIONS.items():
                for name in names:
                    patches.enter_context(mock.patch.object(kind, name, self._answering(name, getattr(kind, name))))
            patches.enter_context(mock.patch.object(torch._C, "_collect_all", self._collecting(torch._C._collect_all)))
            yield self
        for work, *_ in self.on_the_way:
            self._check(work)
        names = [name for _, name, _, _ in self.on_the_way if name != "send"]
        if all_ended and names:
            raise StudentMistake(
                f"nobody waits for the {names[0]} (async_op=True): what it gives may not be there yet, which is a"
                " matter of chance"
            )
        if all_sent and "send" in [name for _, name, _, _ in self.on_the_way]:
            raise StudentMistake(
                "nobody waits for what `send` returns: without wait() a message may never leave, or leave with numbers"
                " that the tensor gets later"
            )

    def end(self, future):
        """Somebody waits for a future, such as DistributedDataParallel for the one that a hook returns."""
        self._end(self._works_of(future))

    def is_on_the_way(self, work):
        """Whether nobody has waited for a work yet."""
        return any(one is work for one, *_ in self.on_the_way)

    def _works_of(self, asked):
        return (
            [asked]
            if isinstance(asked, dist.Work)
            else [work for future, works in self._futures if future is asked for work in works]
        )

    def _end(self, works):
        self.on_the_way = [one for one in self.on_the_way if not any(one[0] is work for work in works)]

    def _answering(self, name, original):
        def call(asked, *arguments, **options):
            works = self._works_of(asked)
            for work in works:
                self._check(work)
            if name in ("is_completed", "done") and self._is_first_question(works):
                return False
            value = original(asked, *arguments, **options)
            if name in ("get_future", "then"):
                self._futures.append((value, works))
                if not self._must_ask:
                    self._end(works)
            elif value is not False:
                self._end(works)
            if name in ("wait", "is_completed", "done") and value is not False:
                self.waited += works
            return value

        return call

    def _is_first_question(self, works):
        """Whether nobody has asked before if these are over: whether they are, is then a matter of chance, so the
        answer is no."""
        new = [work for work in works if self.is_on_the_way(work) and not any(work is one for one in self._asked)]
        self._asked += new
        return bool(new)

    def _collecting(self, original):
        def call(futures):
            together = original(futures)
            self._futures.append((together, [work for future in futures for work in self._works_of(future)]))
            return together

        return call

    def _check(self, work):
        for one, name, tensors, copies in self.on_the_way:
            if one is work and name == "send" and not all(map(torch.equal, tensors, copies)):
                raise StudentMistake(
                    "a tensor is changed while it is being sent: wait for what `send` returns first, else what arrives"
                    " is a matter of chance"
                )

    def _noting(self, name, original):
        def call(group, *arguments, **options):
            sent = (
                _first_tensors(arguments[1] if "gather" in name or "scatter" in name else arguments[0])
                if arguments
                else []
            )
            copies = [tensor.detach().clone() for tensor in sent] if name == "send" else []
            if name == "send":
                self.messages.append([int(arguments[1]), *copies])
            else:
                self._note(name, sent)
            # what it leaves in the tensors of other ranks is a matter of chance
            if name == "reduce" and getattr(arguments[1], "rootRank", 0) != group.rank():
                arguments = ([tensor.clone() for tensor in arguments[0]], *arguments[1:])
            self.works.append(original(group, *arguments, **options))
            if self.works[-1] is not None:
                self.on_the_way.append((self.works[-1], name, sent, copies))
            return self.works[-1]

        return call

    def _noting_operator(self, original):
        def call(operator, *arguments, **options):
            space, name = str(operator).split(".")[:2]
            value = original(operator, *arguments, **options)
            if "c10d" in space and not SENDS_NOTHING.search(name):
                self._note(name, _first_tensors([*arguments, *options.values()][:1]))
                self.works.append(value)
            elif "c10d" in space and name == "wait_tensor":
                self.waited += arguments
            return value

        return call

    def _note(self, collective, tensors):
        """Its name is what process groups call it: newer methods and functional collectives write all_reduce and
        all_gather."""
        self.collectives.append(
            [re.sub("all_(?=reduce|gather)", "all", collective.strip("_")), sum(tensor.nbytes for tensor in tensors)]
        )

    def hand_over(self):
        """[name, bytes] of what was sent since the last call."""
        sent = [*map(list, self.collectives), *(["send", tensor.nbytes] for _, tensor in self.messages)]
        self.messages, self.collectives, self.works = [], [], []
        return sent


def _first_tensors(thing):
    """The tensors in an argument of a process group's method."""
    if isinstance(thing, torch.Tensor):
        return [thing]
    return [tensor for one in thing for tensor in _first_tensors(one)] if isinstance(thing, (list, tuple)) else []
