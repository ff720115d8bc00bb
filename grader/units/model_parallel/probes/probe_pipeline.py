"""Probes of pipeline.py and torch_pipeline.py. The probe simulates the previous and the next stage in the same
process, so nothing can hang. It sends random numbers, so that each stage is judged by itself."""

import contextlib
import functools
import inspect
import operator
import weakref
from types import SimpleNamespace
from unittest import mock

import torch
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
from handson.words import a_kind


def my_layers(rank, ranks, source, case):
    """Return the numbers of each stage's layers, for each of case["sizes"], (layers, stages): {"layers": [[[0, 1],
    [2]], ...]}."""
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
        raise StudentMistake(f"`mine` is {mine!r:.60}: it should be a range of layer indices") from None


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
            raise StudentMistake(f"the network receives {shape} instead of a micro-batch of shape {self.shape}")
        self.inputs.append(inputs.detach().clone())
        outputs = super().forward(Kept.apply(inputs, self.tokens))
        self.outputs.append(weakref.ref(outputs))
        if inputs.requires_grad:  # images are there anyway
            self.received.append(weakref.ref(inputs))
        return outputs

    def alive(self):
        """Return the number of micro-batches whose inputs or other activations are still held."""
        inputs = sum(received() is not None for received in self.received)
        return max(
            inputs,
            sum(token() is not None or outputs() is not None for token, outputs in zip(self.tokens, self.outputs)),
        )


def random(case, what, number):
    """Return the random numbers of a message: the "image", "activation" or "gradient" of a micro-batch."""
    generator = torch.Generator().manual_seed(
        case["seed"] + 7919 * number + {"image": 1, "activation": 2, "gradient": 3}[what]
    )
    return torch.randn(IMAGES, PIXELS if what == "image" else WIDTH, dtype=torch.float64, generator=generator)


def labels(case):
    generator = torch.Generator().manual_seed(case["seed"] + 4)
    return list(torch.randint(CLASSES, (case["micro_batches"], IMAGES), generator=generator))


def step(rank, ranks, source, case):
    """Return the results of each stage in a step, in the order of case["operations"][stage]: {"stages": [{"loss",
    "gradients", "inputs", "sent": [operation, to], "numbers": the content of these messages, "held": [operation,
    number of micro-batches with activations before it]}, ...]}."""
    gap = GapCode(source)
    return {"stages": [_step(gap, source["gap"], case, stage) for stage in range(case["stages"])]}


def _step(gap, name, case, stage):
    part, micro_batches, last = Part(case, stage), case["micro_batches"], stage == case["stages"] - 1
    me = SimpleNamespace(network=part, loss_of=F.cross_entropy, first=stage == 0, last=last, held={})
    me.images = [
        random(case, "image", number) if me.first else torch.zeros(IMAGES, 1) for number in range(micro_batches)
    ]
    me.labels = labels(case) if last else [torch.full((IMAGES,), -7)] * micro_batches
    found = {"loss": 0.0, "sent": [], "numbers": [], "held": []}

    def send(operation, to, message):
        if not 0 <= to < case["stages"] or message is None:
            return
        shape = random(case, "activation", 0).shape
        if not isinstance(message, torch.Tensor) or message.shape != shape:
            is_now = tuple(message.shape) if isinstance(message, torch.Tensor) else type(message).__name__
            what = "the outputs are" if operation[0] == "F" else "the gradient of the inputs is"
            raise StudentMistake(f"on stage {stage}, {what} {is_now} in {operation}; it should be {tuple(shape)}")
        found["sent"].append([operation, to])
        found["numbers"].append(message.detach().double().numpy().copy())

    for operation in case["operations"][stage]:
        number = int(operation[1:])
        found["held"].append([operation, part.alive()])
        if operation[0] == "F":
            arrived = None if me.first else random(case, "activation", number)
            if name == "forward":
                outputs = gap.run(self=me, number=number, arrived=arrived).outputs
                _check_held(me, stage, number, outputs)
            else:
                outputs = _forward(me, number, arrived)
            send(operation, stage + 1, outputs)
            found["loss"] += float(outputs) if last else 0.0
            del outputs, arrived
        else:
            gradient = None if last else random(case, "gradient", number)
            if name == "backward":
                of_inputs = gap.run(self=me, number=number, gradient=gradient).of_inputs
            else:
                of_inputs = _backward(me, stage, number, gradient)
            send(operation, stage - 1, of_inputs)
    gradients = [parameter.grad for parameter in part.parameters()]
    return found | {
        "gradients": flat(
            torch.zeros_like(one) if gradient is None else gradient
            for one, gradient in zip(part.parameters(), gradients)
        ),
        "inputs": [one.numpy() for one in part.inputs],
    }


def _forward(me, number, arrived):
    """In the place of the student's."""
    inputs = me.images[number] if me.first else arrived.requires_grad_()
    outputs = me.network(inputs)
    if me.last:
        outputs = me.loss_of(outputs, me.labels[number]) / len(me.labels)
    me.held[number] = inputs, outputs
    return outputs


def _backward(me, stage, number, gradient):
    """In the place of the student's."""
    inputs, outputs = me.held.pop(number)
    outputs.backward(gradient)
    if not me.first and inputs.grad is None:
        raise StudentMistake(
            f"stage {stage} has no gradient of its inputs, which the stage before needs: call inputs.requires_grad_()"
            " before the network uses them, and hold these inputs"
        )
    return inputs.grad


def _check_held(me, stage, number, outputs):
    """Raise StudentMistake for a value with which no backward can start."""
    held = me.held.get(number) if isinstance(me.held, dict) else None
    if not isinstance(held, (tuple, list)) or [isinstance(one, torch.Tensor) for one in held] != [True, True]:
        raise StudentMistake(
            f"after the forward of micro-batch {number}, self.held[{number}] should be the pair (inputs, outputs), two"
            " tensors"
        )
    if not held[1].requires_grad:
        raise StudentMistake(
            f"`outputs` of stage {stage} has no graph to the parameters: do not detach the outputs in self.held"
        )
    if me.last and (held[1].dim() or not isinstance(outputs, torch.Tensor) or outputs.dim()):
        raise StudentMistake("on the last stage, `outputs` should be the loss of the micro-batch, one number")


def torch_schedule(rank, ranks, source, case):
    """Return the results of this rank's stage after a step of the gap's schedule: {"loss", "gradients", "kind": the
    schedule's class}."""
    join(rank, ranks)
    part = Part(case, rank)

    def stage(original, *arguments, **options):
        given = inspect.signature(original).bind(*arguments, **options).arguments
        if given["submodule"] is not part:
            raise StudentMistake(
                f"PipelineStage receives {type(given['submodule']).__name__} instead of `network`, this rank's layers"
            )
        if (given["stage_index"], given["num_stages"]) != (rank, ranks):
            raise StudentMistake(
                f"rank {rank} of {ranks} is stage {given['stage_index']} of {given['num_stages']} in your code, so the"
                " ranks would deadlock: use the rank and the world size"
            )
        return original(*arguments, **options)

    def kind(original, *arguments, **options):
        given = inspect.signature(original).bind(*arguments, **options).arguments
        if given["n_microbatches"] != case["micro_batches"]:
            raise StudentMistake(
                f"n_microbatches is {given['n_microbatches']}, but the batch is split into {case['micro_batches']}"
                " micro-batches"
            )
        if given.get("loss_fn") is None:
            raise StudentMistake("the schedule has no loss_fn, so it cannot run backward: pass loss_of")
        return original(*arguments, **options)

    with contextlib.ExitStack() as stack:
        for name, see in {"PipelineStage": stage, "ScheduleGPipe": kind, "Schedule1F1B": kind}.items():
            stack.enter_context(mock.patch.object(pipelining, name, functools.partial(see, getattr(pipelining, name))))
        script = Script(source, {}, function="make_schedule")
        schedule = script.run(
            lambda names: None, case["name"], part, case["micro_batches"], F.cross_entropy, torch.device("cpu")
        )
    if not isinstance(schedule, pipelining.schedules._PipelineSchedule):
        raise StudentMistake(f"`schedule` is {a_kind(schedule)}, not a schedule of torch.distributed.pipelining")
    images = torch.cat([random(case, "image", number) for number in range(case["micro_batches"])])
    loss = stages.torch_step(schedule, images, torch.cat(labels(case)))
    of_torch = (name for name in ("ScheduleGPipe", "Schedule1F1B") if isinstance(schedule, getattr(pipelining, name)))
    return {
        "loss": float(loss),
        "gradients": flat(parameter.grad for parameter in part.parameters()),
        "kind": next(of_torch, type(schedule).__name__),
    }
