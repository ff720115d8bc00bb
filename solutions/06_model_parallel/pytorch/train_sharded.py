"""Train with all state on every rank, and with it divided among them: mpiexec -n 2 python train_sharded.py --gpu-memory
unlimited"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
import zero
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices, transformer_runs
from handson.pytorch.communicator import meet
from handson.pytorch.transformer import Block
from handson.pytorch.workers import TIMEOUT
from handson.training import data, options
from handson.training.banner import announce

METHODS = ("ddp", "zero", "torch-zero", "fsdp")


def fully_sharded(model, device, ranks):
    """FSDP: each rank keeps its part of each block's parameters; all of a block are gathered for its forward, and again
    for its backward."""
    mesh = init_device_mesh(device.type, (ranks,))
    for layer in model:
        if isinstance(layer, Block):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(comm, args, method, train_set):
    device = devices.use(args.gpu[comm.intra_rank])
    sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler, drop_last=True)

    model = transformer_runs.network(args, len(train_set.classes)).to(device)
    if method == "zero":
        shards = zero.divide(model, lambda parameters: torch.optim.Adam(parameters, lr=args.lr))
    elif method == "fsdp":
        model = fully_sharded(model, device, comm.size)
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    else:
        model = DistributedDataParallel(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
        if method == "torch-zero":
            optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=args.lr)

    progress = transformer_runs.Progress(comm, method)
    for epoch in range(args.epoch):
        sampler.set_epoch(epoch)
        for images, labels in transformer_runs.batches(train_loader, args, device):
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            if method == "zero":
                zero.step(shards)
            else:
                optimizer.step()
                optimizer.zero_grad()
        progress.add(loss.detach())
    progress.report(args, len(train_loader) * args.batchsize * comm.size * args.epoch)


def main():
    args = options.parse(gpus=None, add_options=transformer_runs.add_options(METHODS))
    with meet(args) as comm:  # MPI or torchrun says which rank this is, and where the others are
        dist.init_process_group(comm.backend, store=comm.store, rank=comm.rank, world_size=comm.size, timeout=TIMEOUT)
        train_set, _ = data.load(args.dataset)
        announce("multiple nodes", args, train_set, comm.devices, comm)
        for method, seed in transformer_runs.runs(args):
            train(comm, transformer_runs.one_run(args, method, seed), method, train_set)


if __name__ == "__main__":
    main()
