"""The probe of local_sgd.py: each rank trains a small network with its own batches, and the student's code runs after each step."""

from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F

from grader.probes.pytorch import batch, flat, join, network, precision
from grader.probes.script import Script
from grader.probes.wire import Wire

RATE = 0.5  # the learning rate
IMAGES = 3  # of a rank in a step


def step(model, case, number, rank):
    """Step `number` of SGD on a rank: changes the parameters of `model`."""
    images, labels = batch(case["seed"], number, [IMAGES] * case["ranks"], rank)
    gradients = torch.autograd.grad(F.cross_entropy(model(images), labels), list(model.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter -= RATE * gradient


@precision()
def blocks(rank, ranks, source, case):
    """The parameters of this rank after each block, and what it gave to collectives in each: [name, bytes]."""
    join(rank, ranks)
    model = network(case["seed"])
    start = torch.from_numpy(flat(model.parameters()))
    block = SimpleNamespace(start=start, period=case["period"], momentum=case["momentum"], velocity=0.0, steps=0)

    def gathered(mine):
        """In place of the gap mean."""
        everybodys = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(everybodys, mine)
        return torch.stack(everybodys).mean(dim=0)

    stand_ins = {"mean": ("mean", gathered), "block_momentum": ("", lambda block, mean: setattr(block, "start", mean))}
    stand_ins.pop(source["gap"])
    script, wire, found, sent = Script(source, stand_ins, function="after_step"), Wire(), [], []
    for number in range(case["period"] * case["blocks"]):
        step(model, case, number, rank)
        with wire.noted(all_ended=True):
            script.run(lambda names: None, model, block)
        if (number + 1) % case["period"] == 0:
            found.append(flat(model.parameters()))
            sent.append([list(one) for one in wire.collectives])
            wire.collectives.clear()
    return {"blocks": found, "sent": sent}
