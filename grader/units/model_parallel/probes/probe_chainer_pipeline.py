"""Probes of the Chainer track's pipeline.py. The probe simulates the previous and the next rank in the same process,
so nothing can hang. The stages and all messages contain the same numbers as in the PyTorch track, whose oracle
computes the right results."""

from unittest import mock

import handson.chainer  # noqa: F401 - before chainer: lets it run on today's NumPy
import chainer
import chainer.functions as F
import numpy

from grader.sandbox.rank import StudentMistake
from grader.probes.gap_code import what_is
from grader.probes.script import Script
from grader.units.model_parallel.probes import probe_pipeline
from grader.units.model_parallel.stage_sizes import IMAGES


class Part(chainer.Chain):
    """A stage's part of the network, in double precision. It notes its inputs."""

    def __init__(self, case, stage):
        super().__init__()
        with self.init_scope():
            self.w1, self.b1, self.w2, self.b2 = (
                chainer.Parameter(one.detach().numpy().copy()) for one in probe_pipeline.Part(case, stage).parameters()
            )
        self.inputs = []

    def forward(self, inputs):
        right = IMAGES, self.w1.shape[1]
        if not isinstance(inputs, (chainer.Variable, numpy.ndarray)) or inputs.shape != right:
            raise StudentMistake(
                f"`part` receives {getattr(inputs, 'shape', type(inputs).__name__)} instead of a micro-batch of shape"
                f" {right}"
            )
        self.inputs.append(numpy.array(inputs.array if isinstance(inputs, chainer.Variable) else inputs))
        return F.linear(F.tanh(F.linear(inputs, self.w1, self.b1)), self.w2, self.b2)

    def gradients(self):
        parameters = self.w1, self.b1, self.w2, self.b2
        return numpy.concatenate(
            [numpy.zeros(one.size) if one.grad is None else one.grad.ravel() for one in parameters]
        )


class Neighbours:
    """Replace a communicator: messages go to the previous and the next rank, and come from them."""

    def __init__(self, case, stage):
        self.case, self.rank, self.size = case, stage, case["stages"]
        self.sent, self.numbers, self.backwards = [], [], None  # sent: [operation, to]
        self.sent_tags, self.received_tags = [], []  # [operation, tag] of each message

    def __getattr__(self, name):
        raise StudentMistake(
            f"`comm.{name}` does not exist in this check: a pipeline needs only comm.rank, comm.size, send and recv"
        )

    def _operation(self, messages):
        """Return the name of the operation to which the next of some messages belongs."""
        if self.backwards is not None:
            return f"B{self.backwards}"
        return f"F{sum(name[0] == 'F' for name, _ in messages)}"

    def send(self, data, dest, tag):
        data = data[0] if isinstance(data, tuple) else data
        name = self._operation(self.sent)
        self.sent.append([name, int(dest)])
        self.sent_tags.append([name, int(tag)])
        self.numbers.append(numpy.array(data, dtype=float))

    def recv(self, source, tag):
        name = self._operation(self.received_tags)
        number, forward = int(name[1:]), name[0] == "F"
        right = self.rank - 1 if forward else self.rank + 1
        if not 0 <= right < self.size:
            raise StudentMistake(
                f"rank {self.rank} of {self.size} waits in {name} for a message, but there is no rank"
                f" {'before' if forward else 'after'} it"
            )
        if source != right:
            raise StudentMistake(
                f"rank {self.rank} waits in {name} for a message of rank {source} instead of rank {right}"
            )
        self.received_tags.append([name, int(tag)])
        return probe_pipeline.random(self.case, "activation" if forward else "gradient", number).numpy()

    def backward(self, end):
        """Replace Variable.backward, which a step calls once for each micro-batch."""
        if self.rank < self.size - 1 and end.size:
            raise StudentMistake(
                f"rank {self.rank} starts its backward from {end.size} numbers: it should start from the result of"
                " `send`, which waits for the gradient"
            )
        if self.rank == self.size - 1 and end.size != 1:
            raise StudentMistake(
                f"the last rank starts its backward from {end.size} numbers: it should start from the loss, one number"
            )
        self.backwards = 0 if self.backwards is None else self.backwards + 1
        ORIGINAL(end)


ORIGINAL = chainer.Variable.backward


def _images(case, stage):
    return [
        probe_pipeline.random(case, "image", number).numpy() if stage == 0 else numpy.zeros((IMAGES, 1))
        for number in range(case["micro_batches"])
    ]


def _labels(case, stage):
    right = [one.numpy().astype("int32") for one in probe_pipeline.labels(case)]
    return right if stage == case["stages"] - 1 else [numpy.full(IMAGES, -7, "int32") for _ in right]


def chain_list(rank, ranks, source, case):
    """Return the results of each stage in a step with the whole batch, in the form of
    grader.units.model_parallel.probes.probe_pipeline.step."""

    def one(comm, part, images, labels):
        stage = Script(source, {}, function="make_stage").run(lambda names: None, comm, part)
        if not isinstance(stage, chainer.Link):
            raise StudentMistake(f"`stage` is {what_is(source, 'stage', stage)}, not a link")
        if not list(stage.children()):
            raise StudentMistake("`stage` has no link: call stage.add_link(part, ...)")
        end = stage(images[0]) if comm.rank == 0 else stage()
        if comm.rank == comm.size - 1:
            if end.shape != (IMAGES, probe_pipeline.CLASSES):
                raise StudentMistake("the last stage does not return its outputs: set its rank_out to None")
            end = F.softmax_cross_entropy(end, labels[0])
        if comm.sent or comm.rank == comm.size - 1:
            comm.backward(end)
        return float(end.array) if end.size == 1 else 0.0

    return {"stages": [_step(case, stage, one) for stage in range(case["stages"])]}


def micro_batch(rank, ranks, source, case):
    """Return the results of each stage in a step with micro-batches."""

    def one(comm, part, images, labels):
        with mock.patch.object(chainer.Variable, "backward", lambda end: comm.backward(end)):
            return Script(source, {}, function="gpipe_step").run(lambda names: None, comm, part, images, labels)

    return {"stages": [_step(case, stage, one) for stage in range(case["stages"])]}


def _step(case, stage, one):
    comm, part = Neighbours(case, stage), Part(case, stage)
    loss = one(comm, part, _images(case, stage), _labels(case, stage))
    return {
        "loss": float(loss) if stage == comm.size - 1 else 0.0,
        "gradients": part.gradients(),
        "inputs": part.inputs,
        "sent": comm.sent,
        "numbers": comm.numbers,
        "sent_tags": comm.sent_tags,
        "received_tags": comm.received_tags,
        "held": [],
    }
