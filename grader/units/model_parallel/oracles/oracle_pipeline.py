"""The reference for pipeline.py: PyTorch's gradients of each stage's part of the network, computed separately, and
the gradients of typical mistakes."""

import numpy
import torch
import torch.nn.functional as F

from grader.probes.pytorch_scripts import flat
from grader.units.model_parallel.probes.probe_pipeline import Part, labels, random
from grader.units.model_parallel.stage_sizes import IMAGES

SUMMED = "they are the sum over the micro-batches: divide each micro-batch's loss by the number of micro-batches"
ONLY_LAST = "they come only from the last micro-batch: backward adds to the gradients, so do not set them to zero"
NONE = "they are missing: backward does not reach these parameters"
LAST_MISSING = "those of the last micro-batch are missing"
FIRST_LABELS = "each micro-batch is compared with the labels of micro-batch 0: use self.labels[number]"
ONES = "the gradient from the next stage is not used: call outputs.backward(gradient)"


def _scaled(case, own):
    """Return {the sentence of a mistake in the loss: the gradients}. own: the gradients of each micro-batch."""
    count, right = case["micro_batches"], sum(own)
    return {
        SUMMED: count * right,
        ("they are too small by a factor of the number of micro-batches: divide the loss by this number only once"): (
            right / count
        ),
        (
            "the loss is divided by the number of images in a micro-batch, but it is already their mean: divide it by"
            " the number of micro-batches"
        ): (count / IMAGES * right),
        "the loss is divided by the number of stages: divide it by the number of micro-batches": (
            count / case["stages"] * right
        ),
        "each loss is divided by its index + 1: divide it by the number of micro-batches": sum(
            count / (number + 1) * one for number, one in enumerate(own)
        ),
    }


def step(rank, ranks, case):
    """Return for each stage: {"loss", "inputs", "outputs" and "before" (for each micro-batch, the values sent on and
    the values sent back), "gradients": {"right" or the sentence of a mistake: all gradients}}."""
    return [_stage(case, stage) for stage in range(case["stages"])]


def whole(rank, ranks, case):
    """Return for each stage the "loss" and the "gradients" in the form of `step`, if the stages send to each other.
    The values are those of the network without stages."""
    parts, micro_batches = [Part(case, stage) for stage in range(case["stages"])], case["micro_batches"]
    network = torch.nn.Sequential(*parts)
    losses = [
        F.cross_entropy(network(random(case, "image", number)), labels(case)[number]) / micro_batches
        for number in range(micro_batches)
    ]
    own = [torch.autograd.grad(loss, list(network.parameters())) for loss in losses]
    total, found = float(sum(losses)), []
    for stage, part in enumerate(parts):
        begin = sum(len(list(one.parameters())) for one in parts[:stage])
        mine = [flat(of_loss[begin : begin + len(list(part.parameters()))]) for of_loss in own]
        gradients = {
            "right": sum(mine),
            NONE: 0 * mine[0],
            ONLY_LAST: mine[-1],
            LAST_MISSING: sum(mine[:-1]),
        } | _scaled(case, mine)
        found.append({"loss": total if stage == case["stages"] - 1 else 0.0, "gradients": gradients})
    return found


def _stage(case, stage):
    last, micro_batches, part = stage == case["stages"] - 1, case["micro_batches"], Part(case, stage)
    inputs, outputs, before, own, ones, of_first = [], [], [], [], [], []
    for number in range(micro_batches):
        arrives = random(case, "activation" if stage else "image", number).requires_grad_()
        gives = part(arrives)
        if last:
            loss = F.cross_entropy(gives, labels(case)[0]) / micro_batches
            of_first.append(flat(torch.autograd.grad(loss, list(part.parameters()), retain_graph=True)))
            gives = F.cross_entropy(gives, labels(case)[number]) / micro_batches
        gradient = None if last else random(case, "gradient", number)
        wanted = [arrives, *part.parameters()]
        ones.append(flat(torch.autograd.grad(gives.sum(), wanted, retain_graph=True)[1:]))
        found = torch.autograd.grad(gives, wanted, gradient)
        inputs.append(arrives.detach().numpy())
        outputs.append(gives.detach().numpy())
        before.append(found[0].numpy())
        own.append(flat(found[1:]))
    gradients = {
        "right": sum(own),
        NONE: 0 * own[0],
        ONLY_LAST: own[-1],
        LAST_MISSING: sum(own[:-1], numpy.zeros_like(own[0])),
    }
    gradients |= _scaled(case, own) | {FIRST_LABELS: sum(of_first)} if last else {ONES: sum(ones)}
    return {
        "loss": float(sum(map(numpy.sum, outputs))) if last else 0.0,
        "inputs": inputs,
        "outputs": outputs,
        "before": before,
        "gradients": gradients,
    }
