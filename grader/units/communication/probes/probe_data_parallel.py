"""Probes of data_parallel.py. The probe plays backward, and an all-reduce happens only when it is waited for, so that
order shows."""

import contextlib
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F

from grader.probes.count_collectives import Collectives
from grader.probes.gap_code import GapCode, filled
from grader.probes.pytorch_scripts import batch, flat, join, network, precision
from grader.probes.script import Script, causes
from grader.sandbox.rank import StudentMistake

NOT_YET, OWN = 5.0, 7.0  # each number of a mean before anybody waits for it, and of this rank's own gradients


class Work:
    """An all-reduce that happens when it is waited for."""

    def __init__(self, number, tensor, happen, note):
        self.number, self.tensor, self.happen, self.note = number, tensor, happen, note
        self.before, self.happened, self.changed = tensor.clone(), False, False

    def wait(self, timeout=None):
        if not self.happened:
            self.happened, self.changed = True, not torch.equal(self.before, self.tensor)
            self.note("wait", self.number)
            self.happen()
        return True

    def is_completed(self):
        return self.wait()

    def get_future(self):
        return Future(self)


class Future(torch.futures.Future):
    """What Work.get_future returns: waits for the work as soon as anybody asks."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def wait(self):
        self.work.wait()
        if not self.done():
            self.set_result([self.work.tensor])
        return super().wait()

    value = wait


class Network:
    """What a rank gives to its process group. events: ["gradient", 0], ["begin" or "wait", number of the all-reduce],
    in their order."""

    def __init__(self):
        self.events, self.works = [], []

    @contextlib.contextmanager
    def used(self):
        original = dist.ProcessGroup.allreduce

        def allreduce(group, tensors, *options):
            [tensor] = tensors
            work = Work(len(self.works), tensor, lambda: original(group, [tensor], *options).wait(), self.note)
            self.works.append(work)
            self.note("begin", work.number)
            return work

        with mock.patch.object(dist.ProcessGroup, "allreduce", allreduce):
            yield self

    def note(self, what, number=0):
        self.events.append([what, number])

    def shares_memory(self):
        spans = sorted((work.tensor.data_ptr(), work.tensor.data_ptr() + work.tensor.nbytes) for work in self.works)
        return any(begin < end for (_, end), (begin, _) in zip(spans, spans[1:]))


@precision()
def broadcast(rank, ranks, source, case):
    """The parameters of this rank afterwards."""
    join(rank, ranks)
    model = network(case["seed"] + rank)
    with Collectives().noted(all_ended=True):
        GapCode(source).run(model=model)
    dist.barrier()
    return {"parameters": flat(model.parameters())}


def buckets(rank, ranks, source, case):
    """Which parameters are in which bucket."""
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in case["sizes"]]
    made, places = (
        GapCode(source).run(parameters=list(parameters), most=case["most"]).buckets,
        {id(one): place for place, one in enumerate(parameters)},
    )
    if not isinstance(made, (list, tuple)) or not all(isinstance(bucket, (list, tuple)) for bucket in made):
        raise StudentMistake("`buckets` should be a list of lists of parameters")
    if any(id(one) not in places for bucket in made for one in bucket):
        raise StudentMistake("`buckets` has something that is no parameter of the model")
    return {"buckets": [[places[id(one)] for one in bucket] for bucket in made]}


def parts(parameters, sizes):
    """Parameters, the last one first, in buckets of these sizes."""
    rest = iter(parameters[::-1])
    return [[next(rest) for _ in range(size)] for size in sizes]


def own_gradients(case, rank, ranks, step):
    """The gradients that a rank computes by itself in a step, for the parameters of `network`, the last one first."""
    model = network(case["seed"])
    images, labels = batch(case["seed"], step, [3] * ranks, rank)
    return torch.autograd.grad(F.cross_entropy(model(images), labels), list(model.parameters()))[::-1]


@contextlib.contextmanager
def gradients_there(bucket):
    """Raises StudentMistake for an all-reduce that begins before all gradients of its bucket are there."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        if "None" not in str(error) or all(parameter.grad is not None for parameter in bucket):
            raise
        raise StudentMistake(
            "an all-reduce begins when a gradient of its bucket is not there yet: it takes len(buckets[number]) calls"
            " of `ready`, one for each gradient"
        ) from error


@precision()
def ready(rank, ranks, source, case):
    """For each step: the buckets in `in_flight` and their means, in which order things happened, what was sent, and
    whether memory was used twice."""
    join(rank, ranks)
    made = parts(list(network(case["seed"]).parameters()), case["buckets"])
    parameters, called = [one for bucket in made for one in bucket], []
    places = {tuple(map(id, bucket)): number for number, bucket in enumerate(made)}
    script = Script(
        source,
        {"hook": ("", lambda number, parameter, ready: called.append((number, parameter, ready)))},
        function="average_gradients",
    )
    in_flight, steps = script.run(lambda names: None, made), []
    for step in range(case["steps"]):
        gradients = own_gradients(case, rank, ranks, step)
        for parameter in parameters:
            parameter.grad = None
        collectives = Collectives()
        with collectives.noted(), Network().used() as seen, filled():
            for place in case["order"]:
                number, parameter, function = called[place]
                parameter.grad = gradients[place].clone()
                seen.note("gradient")
                with gradients_there(made[number]):
                    function(number, parameter)
            events = list(seen.events)
            shared = seen.shares_memory()
            for work in seen.works:
                work.wait()
            for entry in in_flight:
                if not isinstance(entry, (tuple, list)) or len(entry) != 3 or not isinstance(entry[1], torch.Tensor):
                    raise StudentMistake("an entry of `in_flight` should be (bucket, mean, work)")
                entry[2].wait()
        found = [places.get(tuple(map(id, bucket)), -1) for bucket, _, _ in in_flight]
        means = [mean.detach().double().flatten().numpy().copy() for _, mean, _ in in_flight]
        changed = any(work.changed for work in seen.works)
        steps.append(
            {
                "buckets": found,
                "means": means,
                "events": events,
                "sent": collectives.hand_over(),
                "changed": changed,
                "shared": shared,
            }
        )
        in_flight.clear()
    return {"steps": steps}


@precision()
def hook(rank, ranks, source, case):
    """The calls of `ready` in two backward passes: (place of the parameter, number of the bucket, whether its gradient
    was complete, and whether it was the last one so far that was)."""
    join(rank, ranks)
    model, calls = network(case["seed"]), []
    made = parts(list(model.parameters()), case["buckets"])
    parameters = [one for bucket in made for one in bucket]
    places = {id(one): place for place, one in enumerate(parameters)}
    complete = []  # the parameters whose gradients are, in their order
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(complete.append)

    def note(number, parameter):
        if not calls:
            raise StudentMistake(
                "`ready` is called at once, before any backward pass: register a function that calls it, such as"
                " partial(ready, number)"
            )
        if id(parameter) not in places:
            raise StudentMistake("`ready` gets something that is no parameter: its second argument is the parameter")
        calls[-1].append(
            (
                places[id(parameter)],
                number,
                None if parameter.grad is None else parameter.grad.clone(),
                bool(complete) and complete[-1] is parameter,
            )
        )

    Script(source, {"ready": ("", note)}, function="average_gradients").run(lambda names: None, made)
    for step in range(2):
        calls.append([])
        model.zero_grad(set_to_none=False)
        images, labels = batch(case["seed"], step, [3], 0)
        with causes():
            F.cross_entropy(model(images), labels).backward()
        calls[-1] = [
            [place, number, seen is not None and torch.equal(seen, parameters[place].grad), last]
            for place, number, seen, last in calls[-1]
        ]
    return {"calls": calls}


def means(case, step):
    """What the all-reduces of a step give: a long tensor for each bucket."""
    generator = torch.Generator().manual_seed(case["seed"] + step)
    made = parts(list(network(case["seed"]).parameters()), case["buckets"])
    return [
        torch.randn(sum(one.numel() for one in bucket), dtype=torch.float64, generator=generator) for bucket in made
    ]


@precision()
def wait(rank, ranks, source, case):
    """For each of two steps: the gradients afterwards, whether parameters changed, how many all-reduces nobody waited
    for, and what is left."""
    join(rank, ranks)
    parameters = list(network(case["seed"]).parameters())
    made, before, student, steps, in_flight = (
        parts(parameters, case["buckets"]),
        flat(parameters),
        GapCode(source),
        [],
        [],
    )
    for step in range(2):
        works = []
        for bucket, right in zip(made, means(case, step)):
            mean = torch.full_like(right, NOT_YET)
            works.append(Work(0, mean, lambda mean=mean, right=right: mean.copy_(right), lambda *_: None))
            in_flight.append((bucket, mean, works[-1]))
            for parameter in bucket:
                parameter.grad = torch.full_like(parameter, OWN)
        student.run(in_flight=in_flight)
        gradients = flat(parameter.grad for bucket in made for parameter in bucket)
        changed, unwaited = bool((flat(parameters) != before).any()), sum(not work.happened for work in works)
        steps.append({"gradients": gradients, "parameters": changed, "unwaited": unwaited, "left": len(in_flight)})
    return {"steps": steps}
