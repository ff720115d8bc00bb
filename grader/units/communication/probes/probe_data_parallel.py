"""Probes of data_parallel.py. The probe simulates backward, and runs an all-reduce only when the code waits for it, so
that the order of events is visible."""

import contextlib
from functools import partial
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F

from grader.probes.count_collectives import Collectives
from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import batch, flat, join, network, precision
from grader.probes.script import causes
from grader.sandbox.rank import StudentMistake
from handson.words import a_kind

NOT_YET, OWN = 5.0, 7.0  # each number of a mean before the code waits for it, and of this rank's own gradients


class Work:
    """An all-reduce that runs when the code waits for it."""

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
    """The result of Work.get_future: it waits for the work when the code asks for the value."""

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
    """The calls of a rank's process group. events: ["gradient", 0], ["begin" or "wait", number of the all-reduce], in
    their order."""

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
    """Return the parameters of this rank after the student's broadcast."""
    join(rank, ranks)
    model = network(case["seed"] + rank)
    with Collectives().noted(all_ended=True):
        GapCode(source).run(model=model)
    dist.barrier()
    return {"parameters": flat(model.parameters())}


def buckets(rank, ranks, source, case):
    """Return which parameters are in which bucket."""
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in case["sizes"]]
    made, places = (
        GapCode(source).run(parameters=list(parameters), most=case["most"]).buckets,
        {id(one): place for place, one in enumerate(parameters)},
    )
    if not isinstance(made, (list, tuple)) or not all(isinstance(bucket, (list, tuple)) for bucket in made):
        raise StudentMistake("`buckets` should be a list of lists of parameters")
    if any(id(one) not in places for bucket in made for one in bucket):
        raise StudentMistake("`buckets` contains an object that is not a parameter of the model")
    return {"buckets": [[places[id(one)] for one in bucket] for bucket in made]}


def parts(parameters, sizes):
    """Return the parameters, the last one first, in buckets of these sizes."""
    rest = iter(parameters[::-1])
    return [[next(rest) for _ in range(size)] for size in sizes]


def own_gradients(case, rank, ranks, step):
    """Return the gradients that a rank computes by itself in a step, for the parameters of `network`, the last
    first."""
    model = network(case["seed"])
    images, labels = batch(case["seed"], step, [3] * ranks, rank)
    return torch.autograd.grad(F.cross_entropy(model(images), labels), list(model.parameters()))[::-1]


def made_buckets(student, parameters, sizes):
    """Return Bucket objects of the student's file, filled as by `parts`, and all their parameters in this order."""
    buckets = [student.module.Bucket(part) for part in parts(parameters, sizes)]
    return buckets, [parameter for bucket in buckets for parameter in bucket.parameters]


@contextlib.contextmanager
def gradients_there(bucket):
    """Raise StudentMistake for an all-reduce that starts before all gradients of its bucket are complete."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        if "None" not in str(error) or all(parameter.grad is not None for parameter in bucket.parameters):
            raise
        raise StudentMistake(
            "an all-reduce starts before all gradients of its bucket are complete: wait for len(self.parameters) calls"
            " of `ready`, one for each gradient"
        ) from error


@precision()
def ready(rank, ranks, source, case):
    """Return for each step: which buckets have an all-reduce, their means, the events in their order, the bytes that
    were sent, and whether two all-reduces share memory."""
    join(rank, ranks)
    student = GapCode(source)
    buckets, parameters = made_buckets(student, list(network(case["seed"]).parameters()), case["buckets"])
    bucket_of, steps = [bucket for bucket in buckets for _ in bucket.parameters], []
    for step in range(case["steps"]):
        gradients = own_gradients(case, rank, ranks, step)
        for parameter in parameters:
            parameter.grad = None
        for bucket in buckets:
            bucket.mean = bucket.work = None
        collectives = Collectives()
        with collectives.noted(), Network().used() as seen, causes():
            for place in case["order"]:
                parameters[place].grad = gradients[place].clone()
                seen.note("gradient")
                with gradients_there(bucket_of[place]):
                    student.run(self=bucket_of[place], parameter=parameters[place])
            events = list(seen.events)
            shared = seen.shares_memory()
            for work in seen.works:
                work.wait()
            for bucket in buckets:
                if bucket.mean is not None and not isinstance(bucket.mean, torch.Tensor):
                    raise StudentMistake(f"`self.mean` should be a tensor; it is {a_kind(bucket.mean)}")
                if bucket.work is not None:
                    bucket.work.wait()
        begun = [bucket.mean is not None and bucket.work is not None for bucket in buckets]
        means = [flat([bucket.mean]) for bucket in buckets if bucket.mean is not None]
        steps.append(
            {
                "begun": begun,
                "means": means,
                "events": events,
                "sent": collectives.hand_over(),
                "changed": any(work.changed for work in seen.works),
                "shared": shared,
            }
        )
    return {"steps": steps}


@precision()
def hook(rank, ranks, source, case):
    """Return the calls of `ready` in two backward passes: (place of the parameter, whether its gradient was complete,
    and whether it was the last gradient that was complete)."""
    join(rank, ranks)
    model, calls, student = network(case["seed"]), [], GapCode(source)
    buckets, parameters = made_buckets(student, list(model.parameters()), case["buckets"])
    places = {id(one): place for place, one in enumerate(parameters)}
    complete = []  # the parameters whose gradients are complete, in their order
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(complete.append)

    def note(bucket, parameter):
        if not calls:
            raise StudentMistake(
                "`ready` is called by `register`, before any backward pass: register the function self.ready itself"
            )
        if id(parameter) not in map(id, bucket.parameters):
            raise StudentMistake("`ready` is called with an object that is not a parameter of its bucket")
        seen = None if parameter.grad is None else parameter.grad.clone()
        calls[-1].append((places[id(parameter)], seen, bool(complete) and complete[-1] is parameter))

    for bucket in buckets:
        bucket.ready = partial(note, bucket)
        with causes():
            student.run(self=bucket)
    for step in range(2):
        calls.append([])
        model.zero_grad(set_to_none=False)
        images, labels = batch(case["seed"], step, [3], 0)
        with causes():
            F.cross_entropy(model(images), labels).backward()
        calls[-1] = [
            [place, seen is not None and torch.equal(seen, parameters[place].grad), last]
            for place, seen, last in calls[-1]
        ]
    return {"calls": calls}


def means(case, step):
    """Return the results of the all-reduces of a step: a long tensor for each bucket."""
    generator = torch.Generator().manual_seed(case["seed"] + step)
    made = parts(list(network(case["seed"]).parameters()), case["buckets"])
    return [
        torch.randn(sum(one.numel() for one in bucket), dtype=torch.float64, generator=generator) for bucket in made
    ]


@precision()
def wait(rank, ranks, source, case):
    """Return for each of two steps: the gradients after `wait`, whether the parameters have changed, and how many
    all-reduces were never waited for."""
    join(rank, ranks)
    student, steps = GapCode(source), []
    buckets, parameters = made_buckets(student, list(network(case["seed"]).parameters()), case["buckets"])
    before = flat(parameters)
    for step in range(2):
        works = []
        for bucket, right in zip(buckets, means(case, step)):
            bucket.mean = torch.full_like(right, NOT_YET)
            bucket.work = Work(0, bucket.mean, partial(bucket.mean.copy_, right), lambda *_: None)
            works.append(bucket.work)
            for parameter in bucket.parameters:
                parameter.grad = torch.full_like(parameter, OWN)
        for bucket in buckets:
            student.run(self=bucket)
        gradients = flat(parameter.grad for parameter in parameters)
        changed, unwaited = bool((flat(parameters) != before).any()), sum(not work.happened for work in works)
        steps.append({"gradients": gradients, "parameters": changed, "unwaited": unwaited})
    return {"steps": steps}
