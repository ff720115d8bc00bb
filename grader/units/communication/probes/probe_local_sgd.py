"""The probe of local_sgd.py: each rank trains a small network with its own batches, and the student's code runs after
each step."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from grader.probes.count_collectives import Collectives
from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import batch, flat, join, network, precision
from grader.probes.script import Script
from grader.sandbox.rank import StudentMistake

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
    """The parameters of this rank after each block, and what it sent in each: [name, bytes]."""
    join(rank, ranks)
    model = network(case["seed"])
    start = torch.from_numpy(flat(model.parameters()))
    block = GapCode(source).module.Block(start, case["period"], case["momentum"])

    def gathered(mine):
        """In place of the gap mean."""
        everybodys = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(everybodys, mine)
        return torch.stack(everybodys).mean(dim=0)

    def see(names):
        if names.get("block") is not block:
            raise StudentMistake(
                "`block` is another one after your code, and the next step gets the one before: change that one's"
                " block.velocity and block.start"
            )

    stand_ins = {"mean": ("mean", gathered), "block_momentum": ("", lambda block, mean: setattr(block, "start", mean))}
    stand_ins.pop(source["gap"])
    script, collectives, found, sent = Script(source, stand_ins, function="after_step"), Collectives(), [], []
    for number in range(case["period"] * case["blocks"]):
        step(model, case, number, rank)
        with collectives.noted(all_ended=True):
            script.run(see, model, block)
        if (number + 1) % case["period"] == 0:
            found.append(flat(model.parameters()))
            sent.append(collectives.hand_over())
    return {"blocks": found, "sent": sent}
