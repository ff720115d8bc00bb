"""What pipeline.py's stages should do, each by itself: PyTorch's own gradients of a stage's part of the network; and what mistakes give."""

import numpy
import torch
import torch.nn.functional as F

from grader.probes.pytorch import flat
from grader.units.model_parallel.probes.pipeline import Part, labels, random

SUMMED = "the losses of the micro-batches are added up: divide each by their number, and the sum is the batch's mean"
ONLY_LAST = "only the gradients of the last micro-batch are there: backward adds up those of all, so nothing may be set to zero"
NONE = "there are none: backward does not reach these parameters"
LAST_MISSING = "the gradients of the last micro-batch are missing"
ONES = "the gradient that arrives from the next stage is not used: outputs.backward(gradient)"


def step(rank, ranks, case):
    """For each stage: {"loss", "inputs", "outputs" and "before" (of each micro-batch: what is sent on, and back), "gradients": {"right" or the
    sentence of a mistake: all of them}}."""
    return [_stage(case, stage) for stage in range(case["stages"])]


def whole(rank, ranks, case):
    """For each stage the "loss" and the "gradients", as `step` gives them, where the stages send to each other: the unsplit network's."""
    parts, micro_batches = [Part(case, stage) for stage in range(case["stages"])], case["micro_batches"]
    Part.tokens = []
    network = torch.nn.Sequential(*parts)
    losses = [F.cross_entropy(network(random(case, "image", number)), labels(case)[number]) / micro_batches for number in range(micro_batches)]
    own = [torch.autograd.grad(loss, list(network.parameters())) for loss in losses]
    total, found = float(sum(losses)), []
    for stage, part in enumerate(parts):
        begin = sum(len(list(one.parameters())) for one in parts[:stage])
        mine = [flat(of_loss[begin : begin + len(list(part.parameters()))]) for of_loss in own]
        gradients = {"right": sum(mine), NONE: 0 * mine[0], SUMMED: micro_batches * sum(mine), ONLY_LAST: mine[-1], LAST_MISSING: sum(mine[:-1])}
        found.append({"loss": total if stage == case["stages"] - 1 else 0.0, "gradients": gradients})
    return found


def _stage(case, stage):
    last, micro_batches, part = stage == case["stages"] - 1, case["micro_batches"], Part(case, stage)
    Part.tokens = []
    inputs, outputs, before, own, ones = [], [], [], [], []
    for number in range(micro_batches):
        arrives = random(case, "activation" if stage else "image", number).requires_grad_()
        gives = part(arrives)
        gives = F.cross_entropy(gives, labels(case)[number]) / micro_batches if last else gives
        gradient = None if last else random(case, "gradient", number)
        wanted = [arrives, *part.parameters()]
        ones.append(flat(torch.autograd.grad(gives.sum(), wanted, retain_graph=True)[1:]))
        found = torch.autograd.grad(gives, wanted, gradient)
        inputs.append(arrives.detach().numpy())
        outputs.append(gives.detach().numpy())
        before.append(found[0].numpy())
        own.append(flat(found[1:]))
    gradients = {"right": sum(own), NONE: 0 * own[0], ONLY_LAST: own[-1], LAST_MISSING: sum(own[:-1], numpy.zeros_like(own[0]))}
    gradients |= {SUMMED: micro_batches * sum(own)} if last else {ONES: sum(ones)}
    return {"loss": float(sum(map(numpy.sum, outputs))) if last else 0.0, "inputs": inputs, "outputs": outputs, "before": before, "gradients": gradients}
