"""Steps of data-parallel training on GPUs, each rank with its part of every batch: mpiexec -n 2 python two_on_one.py OUT

Rank 0 writes what the parameters are afterwards. `alone` computes the same in one process on the CPU.
"""

import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from handson.pytorch import devices
from handson.training import options

STEPS, BATCH = 5, 32


def network():
    """Without batch normalisation, whose statistics are those of a rank's part."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))


def train(model, device, part=slice(None)):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        images = torch.rand(BATCH, 3, 16, 16, generator=generator)[part].to(device)
        labels = torch.randint(10, (BATCH,), generator=generator)[part].to(device)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])


def alone():
    """The parameters after the same steps with whole batches, in one process on the CPU."""
    return train(network(), torch.device("cpu"))


def main():
    options.begin_ranks(60)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    args = SimpleNamespace(gpu=devices.first(2))
    dist.init_process_group(devices.backend(args.gpu))
    rank = dist.get_rank()
    device = devices.use(args.gpu[rank])
    found = train(DistributedDataParallel(network().to(device)), device, slice(rank, None, 2))
    if rank == 0:
        torch.save(found, sys.argv[1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
