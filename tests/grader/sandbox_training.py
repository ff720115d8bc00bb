"""Trains in sandboxes forked from this process, which holds torch, and prints what came of it as JSON."""

import json
import os
from datetime import timedelta

import sandbox_runs
import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.algorithms.join
from torch.nn.parallel import DistributedDataParallel

RANKS = 3
MIB = 1 << 20


def train(rank, rendezvous):
    """The parameters after two steps of DDP, in which every rank starts elsewhere and has other data."""
    if rendezvous == "file":
        method = f"file://{os.getcwd()}/rendezvous"
    else:
        method = f"tcp://127.0.0.1:{rendezvous}"
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=RANKS, timeout=timedelta(seconds=20))
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    return [round(value, 6) for value in model.module.weight.flatten().tolist()]


def share():
    """A tensor that a forked process changes."""
    context = torch.multiprocessing.get_context("fork")
    tensor = torch.zeros(3).share_memory_()
    child = context.Process(target=tensor.add_, args=(1,))
    child.start()
    child.join()
    return tensor.tolist()


def flood():
    """Memory, in tensors."""
    return [torch.ones(4 * MIB) for _ in range(100)]


def all_of(caller):
    return {
        "file": sandbox_runs.run(train, "file", ranks=RANKS, caller=caller),
        "tcp": sandbox_runs.run(train, 29500, ranks=RANKS, caller=caller),
        "share": sandbox_runs.run(share, caller=caller),
        "flood": sandbox_runs.run(flood, caller=caller, memory_bytes=256 * MIB),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({caller: all_of(caller) for caller in sandbox_runs.CALLERS}))
