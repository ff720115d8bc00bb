"""The plain solution of unit 10_challenge: each rank has the whole network, and all ranks average their gradients in
each step. The times of all other solutions are compared with its time."""

from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel

from handson.pytorch.challenge_task import loss_of

WINDOWS, MICRO_BATCHES = 8, 2  # per rank and step, processed one micro-batch after the other
STEPS, RATE = 140, 0.01


def train(task, micro_batches=MICRO_BATCHES, steps=STEPS):
    """Return the trained network. With one micro-batch, the activations of all windows are in memory at once."""
    model = DistributedDataParallel(task.network())
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    batches = task.batches(WINDOWS // micro_batches)
    for _ in range(steps):
        for number in range(1, micro_batches + 1):
            text, following = next(batches)
            with nullcontext() if number == micro_batches else model.no_sync():
                loss = loss_of(model(text), following) / micro_batches
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.module
