"""Probes of parameter_server.py: the messages pass through the probe, in one process, so that their order is always the
same."""

import contextlib
import weakref
from unittest import mock

import numpy
import torch
import torch.distributed as dist

from grader.probes.exact import numbers
from grader.probes.pytorch_scripts import batch, network, precision
from grader.probes.script import Script
from grader.sandbox.rank import StudentMistake
from grader.units.communication.communication_numbers import LENGTH, RATE
from handson.words import a_kind


class Message:
    """The work that isend and irecv return. A sent tensor must not change before `wait`, or before its receiver has
    answered.

    to: the rank of the receiver; dropped: a list of the ranks whose messages were deleted before that, because gloo
    then aborts a message that has not left; receive: a function that receives the message when `wait` is called, and
    returns its source.
    """

    def __init__(self, tensor=None, to=None, dropped=None, receive=None):
        self.source, self.receive, self.tensor, self.to, self.waited, self.dropped = (
            None,
            receive,
            tensor,
            to,
            False,
            dropped,
        )
        self.before = None if tensor is None else tensor.clone()

    def __del__(self):
        if self.tensor is not None and not self.waited:
            self.dropped.append(self.to)

    def wait(self, timeout=None):
        if self.receive and not self.waited:
            self.source = self.receive()
        self.waited = True
        return True

    def is_completed(self):
        return self.wait()

    def changed(self):
        return not self.waited and self.tensor is not None and not torch.equal(self.tensor, self.before)

    def _source_rank(self):
        return self.source


@contextlib.contextmanager
def messages(ranks, rank, send, receive):
    """Context manager that replaces torch.distributed's messages with send(tensor, to) and receive(tensor, source or
    None), which returns the source.

    It yields the sent messages that are still referenced, a weak set. Raises StudentMistake if a message is deleted
    before it has arrived.
    """
    dropped, on_the_way = [], weakref.WeakSet()

    def none_dropped():
        if dropped:
            raise StudentMistake(
                "your code neither keeps nor waits for the work that `isend` returns, so the message may never leave:"
                " use dist.send, which waits"
            )

    def sent(tensor, dst=None, *arguments, group_dst=None, **options):
        message = Message(tensor, group_dst if dst is None else dst, dropped)
        send(tensor, message.to)
        on_the_way.add(message)
        return message

    def received(tensor, src=None, *arguments, group_src=None, **options):
        none_dropped()
        source = receive(tensor, group_src if src is None else src)
        for message in on_the_way:
            message.waited |= message.to == source
        return source

    instead = {
        "send": lambda *arguments, **options: sent(*arguments, **options).wait() and None,
        "isend": sent,
        "recv": received,
        "irecv": lambda *arguments, **options: Message(receive=lambda: received(*arguments, **options)),
        "get_world_size": lambda *_: ranks,
        "get_rank": lambda *_: rank,
        "P2POp": lambda op, tensor, peer=None, group=None, tag=0, group_peer=None: (
            op,
            tensor,
            group_peer if peer is None else peer,
        ),
        "batch_isend_irecv": lambda operations: [op(tensor, peer) for op, tensor, peer in operations],
    }
    with contextlib.ExitStack() as stack:
        for name, function in instead.items():
            stack.enter_context(mock.patch.object(dist, name, function))
        yield on_the_way
    none_dropped()


@precision()
def serve(rank, ranks, source, case):
    """Return the parameters after each update, the answers {"to", "parameters", "type"}, and the staleness that the
    student's server returns."""
    arrivals, answers, unanswered, seen = list(case["arrivals"]), [], [], []
    come, late = iter(enumerate(arrivals)), list(range(1, 1 + max(arrivals)))

    def receive(tensor, worker):
        step, first = next(come, (len(arrivals), None))
        if first is None and len(seen) == len(arrivals):  # the last gradient of each worker, which arrives too late
            return late.pop()
        if first is None:
            raise StudentMistake(
                "the server receives more gradients than it counts: increase `version` by 1 for each gradient"
            )
        if first in unanswered:
            raise StudentMistake(
                f"the server waits for another gradient before it has answered worker {first}: answer each gradient at"
                " once, so that no worker waits for another worker"
            )
        if worker not in (None, first):
            raise StudentMistake(
                f"the server waits for worker {worker}, but the gradient of worker {first} has arrived: call dist.recv"
                " without a source, which receives the first gradient that arrives"
            )
        if tensor.numel() != LENGTH:
            raise StudentMistake(
                f"your tensor for a gradient has {tensor.numel()} numbers, but `parameters` has {LENGTH}"
            )
        unanswered.append(first)
        tensor.copy_(torch.from_numpy(numbers(case["seed"], step, LENGTH)))
        return first

    def send(tensor, to):
        if tensor.dtype == torch.bool or len(seen) == len(arrivals):  # the script sends it after each answer
            return
        if to in unanswered:
            unanswered.remove(to)
        answers.append(
            {"to": int(to), "parameters": tensor.flatten().double().numpy().copy(), "type": str(tensor.dtype)}
        )

    parameters = torch.zeros(LENGTH, dtype=torch.float64)
    script = Script(source, {}, function="serve")

    def evaluate(version):
        if any(message.changed() for message in on_the_way):
            raise StudentMistake(
                "`parameters` changes while an answer is in flight: wait for the work that isend returns, or send a"
                " copy"
            )
        seen.append(parameters.numpy().copy())

    with messages(1 + max(arrivals), 0, send, receive) as on_the_way:
        staleness = script.run(lambda names: None, parameters, RATE, len(arrivals), evaluate)
    if not isinstance(staleness, list):
        raise StudentMistake(f"`staleness` should be a list, but it is {a_kind(staleness)}")
    if len(seen) != len(arrivals):
        raise StudentMistake(
            f"the server stops after {len(seen)} of {len(arrivals)} gradients: increase `version` by 1 per gradient"
        )
    return {"parameters": numpy.stack(seen), "answers": answers, "staleness": [int(one) for one in staleness]}


@precision()
def work(rank, ranks, source, case):
    """Return for each step of a worker: its messages in their order, whether it sent its gradient, and whether it
    received the answer."""
    model, steps, answers = network(case["seed"]), [], []

    def batches():
        for number in range(case["steps"] + 1):
            steps.append({"events": [], "sent": None})
            yield batch(case["seed"], number, [3], 0)

    def send(tensor, to):
        steps[-1]["events"].append(["send", int(to)])
        steps[-1]["sent"] = tensor.clone()

    def receive(tensor, source):
        if tensor.dtype == torch.bool:  # whether training continues
            tensor.fill_(len(steps) < case["steps"])
            return 0
        steps[-1]["events"].append(["receive", 0 if source is None else int(source)])  # only rank 0 sends
        generator = torch.Generator().manual_seed(case["seed"] + len(steps))
        answers.append(torch.randn(tensor.numel(), dtype=tensor.dtype, generator=generator))
        tensor.copy_(answers[-1])
        return 0

    def begin(names):
        steps[-1]["computed"] = names.gradient.clone()

    def see(names):
        one = steps[-1]
        one["gradient"] = one["sent"] is not None and torch.equal(one["sent"], one["computed"])
        one["parameters"] = (
            bool(answers) and isinstance(names.parameters, torch.Tensor) and torch.equal(names.parameters, answers[-1])
        )

    with messages(4, 2, send, receive):
        Script(source, {}, function="work").run(see, model, batches(), begin=begin)
    found = [
        {"events": one["events"], "gradient": one.get("gradient", False), "parameters": one.get("parameters", False)}
        for one in steps
    ]
    return {
        "steps": (found + [{"events": [], "gradient": False, "parameters": False}] * case["steps"])[: case["steps"]]
    }
