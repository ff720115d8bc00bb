"""Probes of pipeline.py and torch_pipeline.py. The probe plays the stages before and after the student's, in one
process: nothing can hang.

What these send is random, so that each stage is judged by itself.
"""

import contextlib
import functools
import inspect
import operator
import weakref
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed import pipelining

from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import flat, join
from grader.probes.script import Script
from grader.sandbox.rank import StudentMistake
from grader.units.model_parallel.probes.probe_kept import Kept
from grader.units.model_parallel.stage_sizes import CLASSES, IMAGES, PIXELS, WIDTH
from handson.pytorch import stages


def my_layers(rank, ranks, source, case):
    """The numbers of each stage's layers, for each of case["sizes"], (layers, stages): {"layers": [[[0, 1], [2]],
    ...]}."""
    student = GapCode(source)
    return {
        "layers": [
            [_numbers(student.run(layers=layers, stage=stage, stages=of).mine) for stage in range(of)]
            for layers, of in case["sizes"]
        ]
    }


def _numbers(mine):
    try:
        return [operator.index(number) for number in mine]
    except (TypeError, ValueError):
        raise StudentMistake(f"`mine` is {mine!r:.60}: it should be a range of layers' numbers") from None


class Part(nn.Sequential):
    """A stage's part of the network, in double precision: images (IMAGES, PIXELS) or activations (IMAGES, WIDTH) to
    activations, or to scores on the last stage. It notes what is alive of each of its forwards."""

    def __init__(self, case, stage):
        generator = torch.Generator().manual_seed(case["seed"] + 31 * stage)
        narrow, wide = WIDTH if stage else PIXELS, CLASSES if stage == case["stages"] - 1 else WIDTH
        super().__init__(nn.Linear(narrow, WIDTH), nn.Tanh(), nn.Linear(WIDTH, wide))
        self.shape = IMAGES, narrow
        self.double()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
        self.inputs, self.tokens, self.outputs, self.received = [], [], [], []  # copies of the inputs; weak references

    def forward(self, inputs):
        if not isinstance(inputs, torch.Tensor) or inputs.shape != self.shape:
            shape = tuple(inputs.shape) if isinstance(inputs, torch.Tensor) else type(inputs).__name__
            raise StudentMistake(f"the network gets {shape} in place of a micro-batch of shape {self.shape}")
        self.inputs.append(inputs.detach().clone())
        outputs = super().forward(Kept.apply(inputs, self.tokens))
        self.outputs.append(weakref.ref(outputs))
        if inputs.requires_grad:  # images are there anyway
            self.received.append(weakref.ref(inputs))
        return outputs

    def alive(self):
        """Of how many micro-batches the inputs or other activations are there."""
        inputs = sum(received() is not None for received in self.received)
        return max(
            inputs,
            sum(token() is not None or outputs() is not None for token, outputs in zip(self.tokens, self.outputs)),
        )


def random(case, what, number):
    """Random numbers that stand for what arrives: "image", "activation" or "gradient" of a micro-batch."""
    generator = torch.Generator().manual_seed(
        case["seed"] + 7919 * number + {"image": 1, "activation": 2, "gradient": 3}[what]
    )
    return torch.randn(IMAGES, PIXELS if what == "image" else WIDTH, dtype=torch.float64, generator=generator)


def labels(case):
    generator = torch.Generator().manual_seed(case["seed"] + 4)
    return list(torch.randint(CLASSES, (case["micro_batches"], IMAGES), generator=generator))


class Neighbours:
    """The stages before and after the one that runs. `sent` and `received`: [operation, rank, tag] of each message;
    `numbers`: those sent."""

    def __init__(self, case, stage):
        self.case, self.stage, self.operation = case, stage, None
        self.sent, self.numbers, self.received, self.works = [], [], [], []

    @contextlib.contextmanager
    def playing(self):
        """dist's messages go to the neighbours, and come from them."""

        @contextlib.contextmanager
        def noted(name):
            self.operation = name
            yield
            self.operation = None

        def sent_now(*arguments, **options):
            self._sent(*arguments, **options).wait()

        def received_now(*arguments, **options):
            self._received(*arguments, **options).wait()

        instead = {"send": sent_now, "isend": self._sent, "recv": received_now, "irecv": self._received}
        instead |= {"get_rank": lambda *_: self.stage, "get_world_size": lambda *_: self.case["stages"]}
        with contextlib.ExitStack() as stack:
            for name, function in instead.items():
                stack.enter_context(mock.patch.object(dist, name, function))
            stack.enter_context(mock.patch.object(stages, "noted", noted))
            yield

    def _sent(self, tensor, dst=None, group=None, tag=0, group_dst=None):
        to = dst if group_dst is None else group_dst
        if self.operation is None:
            raise StudentMistake("something is sent outside of the operations")
        what, right = (
            "the outputs" if self.operation[0] == "F" else "the gradient of the inputs",
            random(self.case, "activation", 0).shape,
        )
        if tensor.shape != right:
            raise StudentMistake(
                f"stage {self.stage} sends a tensor of the shape {tuple(tensor.shape)} in {self.operation}; {what}"
                f" should have {tuple(right)}"
            )
        self.sent.append([self.operation, int(to), int(tag)])
        self.numbers.append(tensor.detach().double().numpy().copy())
        work = Work(self)
        self.works.append(work)
        return work

    def _received(self, tensor, src=None, group=None, tag=0, group_src=None):
        source, number = src if group_src is None else group_src, int(self.operation[1:])
        before = self.operation[0] == "F"
        what, right = ("the outputs", self.stage - 1) if before else ("the gradient", self.stage + 1)
        if not 0 <= right < self.case["stages"]:
            raise StudentMistake(
                f"stage {self.stage} of {self.case['stages']} waits in {self.operation} for a message; there is no"
                f" stage {'before' if before else 'after'} it"
            )
        if source != right:
            raise StudentMistake(
                f"stage {self.stage} waits in {self.operation} for a message of stage {source}; {what} of micro-batch"
                f" {number} {'are' if before else 'is'} on stage {right}"
            )
        if not before and not any(name == f"F{number}" and to == right for name, to, _ in self.sent):
            raise StudentMistake(
                f"stage {self.stage} waits in {self.operation} for a gradient of stage {right}, to which it has sent no"
                f" outputs of micro-batch {number}: both would wait for ever"
            )
        self.received.append([self.operation, int(source), int(tag)])
        arrives = random(self.case, "activation" if before else "gradient", number)
        if tensor.shape != arrives.shape:
            raise StudentMistake(
                f"stage {self.stage} expects {tuple(tensor.shape)} in {self.operation}; what arrives has the shape"
                f" {tuple(arrives.shape)}"
            )
        with torch.no_grad():
            tensor.copy_(arrives)
        return Work(self)


class Work:
    """What isend and irecv return."""

    def __init__(self, neighbours):
        self.neighbours, self.operation, self.waited, self.blocked = neighbours, neighbours.operation, False, False

    def wait(self, timeout=None):
        self.waited, self.blocked = True, self.blocked or self.neighbours.operation == self.operation
        return True

    def is_completed(self):
        return True


def step(rank, ranks, source, case):
    """What each stage does in a step, in the order of case["operations"][stage]: {"stages": [{"loss", "gradients",
    "inputs", "sent", "numbers", "received", "held": [operation, of how many micro-batches activations are there when
    the gap begins], "blocked", "unwaited"}, ...]}."""
    return {"stages": [_step(source, case, stage) for stage in range(case["stages"])]}


def _step(source, case, stage):
    part, held, neighbours, last = Part(case, stage), [], Neighbours(case, stage), case["stages"] - 1
    micro_batches = range(case["micro_batches"])
    images = (
        [random(case, "image", number) for number in micro_batches]
        if stage == 0
        else [torch.zeros(IMAGES, 1)] * len(micro_batches)
    )
    for_last = labels(case) if stage == last else [torch.full((IMAGES,), -7)] * len(micro_batches)

    def forward(number, stage, last, images, labels, like, network, loss_of, held, sending):
        inputs = images[number] if stage == 0 else neighbours_activation(number).requires_grad_()
        outputs = network(inputs)
        if stage == last:
            outputs = loss_of(outputs, labels[number]) / len(labels)
        else:
            sending[f"F{number}"] = neighbours._sent(outputs.detach(), stage + 1, tag=number)
        held[number] = inputs, outputs
        return inputs, outputs

    def neighbours_activation(number):
        neighbours.received.append([f"F{number}", stage - 1, number])
        return random(case, "activation", number)

    def backward(number, stage, last, held, sending):
        try:
            inputs, outputs = held.pop(number)
        except (KeyError, TypeError, ValueError):
            raise StudentMistake(
                f"after the forward of micro-batch {number}, held[{number}] should be the pair (inputs, outputs)"
            ) from None
        if not isinstance(outputs, torch.Tensor) or not isinstance(inputs, torch.Tensor):
            raise StudentMistake(f"held[{number}] should be the pair (inputs, outputs), two tensors")
        if not outputs.requires_grad:
            raise StudentMistake(
                f"`outputs` of stage {stage} does not lead back to the parameters: what is held must not be detached"
            )
        if stage == last and outputs.dim():
            raise StudentMistake("on the last stage, `outputs` should be the loss of the micro-batch, one number")
        if stage < last and not hasattr(sending.get(f"F{number}"), "wait"):
            raise StudentMistake(
                f"after F{number} of stage {stage}, sending['F{number}'] should be what `send` returns: keep it in"
                " sending[operation], so that somebody waits for it"
            )
        outputs.backward(None if stage == last else random(case, "gradient", number))
        if stage > 0:
            if inputs.grad is None:
                raise StudentMistake(
                    f"stage {stage} has no gradient of its inputs, which the stage before needs:"
                    " inputs.requires_grad_() before the network gets them, and hold these inputs"
                )
            sending[f"B{number}"] = neighbours._sent(inputs.grad, stage - 1, tag=number)

    def begin(names):
        held.append([neighbours.operation, part.alive()])

    stand_ins = {"forward": ("inputs outputs", forward), "backward": ("", backward)}
    stand_ins.pop(source["gap"])
    script = Script(source, stand_ins, function="step")
    with neighbours.playing():
        loss = script.run(
            lambda names: None,
            case["operations"][stage],
            part,
            images,
            for_last,
            torch.empty(IMAGES, WIDTH, dtype=torch.float64),
            F.cross_entropy,
            begin=begin,
        )
    gradients = [parameter.grad for parameter in part.parameters()]
    return {
        "loss": float(loss) if stage == last else 0.0,
        "gradients": flat(
            torch.zeros_like(one) if gradient is None else gradient
            for one, gradient in zip(part.parameters(), gradients)
        ),
        "inputs": [one.numpy() for one in part.inputs],
        "sent": neighbours.sent,
        "numbers": neighbours.numbers,
        "received": neighbours.received,
        "held": held,
        "blocked": sum(work.blocked for work in neighbours.works),
        "unwaited": sum(not work.waited for work in neighbours.works),
    }


def torch_schedule(rank, ranks, source, case):
    """What this rank's stage has after a step of the schedule that the gap makes: {"loss", "gradients", "kind": the
    schedule's class}."""
    join(rank, ranks)
    part = Part(case, rank)

    def stage(original, *arguments, **options):
        given = inspect.signature(original).bind(*arguments, **options).arguments
        if given["submodule"] is not part:
            raise StudentMistake(
                f"the stage gets {type(given['submodule']).__name__} in place of `network`, the layers of this rank"
            )
        if (given["stage_index"], given["num_stages"]) != (rank, ranks):
            raise StudentMistake(
                f"rank {rank} of {ranks} says that it is stage {given['stage_index']} of {given['num_stages']}: all"
                " would wait for ever"
            )
        return original(*arguments, **options)

    def kind(original, *arguments, **options):
        given = inspect.signature(original).bind(*arguments, **options).arguments
        if given["n_microbatches"] != case["micro_batches"]:
            raise StudentMistake(
                f"the schedule gets {given['n_microbatches']} micro-batches; the batch is cut into"
                f" {case['micro_batches']}"
            )
        if given.get("loss_fn") is None:
            raise StudentMistake("the schedule gets no loss_fn: without one there is no backward")
        return original(*arguments, **options)

    with contextlib.ExitStack() as stack:
        for name, see in {"PipelineStage": stage, "ScheduleGPipe": kind, "Schedule1F1B": kind}.items():
            stack.enter_context(mock.patch.object(pipelining, name, functools.partial(see, getattr(pipelining, name))))
        script = Script(source, {}, function="make_schedule")
        schedule = script.run(
            lambda names: None, case["name"], part, case["micro_batches"], F.cross_entropy, torch.device("cpu")
        )
    if not isinstance(schedule, pipelining.schedules._PipelineSchedule):
        raise StudentMistake(
            f"`schedule` is a {type(schedule).__name__}, which is no schedule of torch.distributed.pipelining"
        )
    images = torch.cat([random(case, "image", number) for number in range(case["micro_batches"])])
    loss = stages.torch_step(schedule, images, torch.cat(labels(case)))
    of_torch = (name for name in ("ScheduleGPipe", "Schedule1F1B") if isinstance(schedule, getattr(pipelining, name)))
    return {
        "loss": float(loss),
        "gradients": flat(parameter.grad for parameter in part.parameters()),
        "kind": next(of_torch, type(schedule).__name__),
    }
