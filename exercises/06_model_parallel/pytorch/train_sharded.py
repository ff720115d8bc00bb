"""Train data parallel, with the state replicated on all ranks or sharded among them. Example: mpiexec -n 2 python
train_sharded.py --gpu-memory unlimited"""

import fully_sharded
import torch
import torch.nn.functional as F
import zero
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices, transformer_runs

METHODS = ("ddp", "zero", "torch-zero", "fsdp", "fsdp-bfloat16", "fsdp-gathered")


def train(comm, args, method, train_set):
    device = devices.use(args.gpu[comm.intra_rank])
    sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler, drop_last=True)

    model = transformer_runs.network(args, len(train_set.classes)).to(device)
    if method == "zero":
        shards = zero.divide(model, lambda parameters: torch.optim.Adam(parameters, lr=args.lr))
    elif method.startswith("fsdp"):
        mesh = init_device_mesh(device.type, (comm.size,))
        model = fully_sharded.shard(model, mesh, torch.bfloat16 if method == "fsdp-bfloat16" else torch.float32)
        if method == "fsdp-gathered":
            model.set_reshard_after_forward(False)  # of all blocks
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
            loss = F.cross_entropy(model(images).float(), labels)
            loss.backward()
            if method == "zero":
                zero.step(shards)
            else:
                optimizer.step()
                optimizer.zero_grad()
        progress.add(loss.detach())
    progress.report(args, len(train_loader) * args.batchsize * comm.size * args.epoch)


if __name__ == "__main__":
    transformer_runs.train_each(train, METHODS)
