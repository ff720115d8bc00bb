"""Train a transformer whose MLPs are experts on different ranks: mpiexec -n 4 python train_experts.py --help

Each rank has its own images, as in data-parallel training, and its own experts.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from experts import Experts
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices, experts_runs, transformer_runs

METHODS = {"unbalanced": 0.0, "balanced": 0.02}  # name -> weight of the balancing loss


def average_gradients(model, layers):
    """Average the gradients over the ranks. The loss of a rank is the mean over its images, and the total loss is the
    mean of the ranks' losses."""
    size = dist.get_world_size()
    of_experts = {parameter for layer in layers for parameter in layer.mine.parameters()}
    for parameter in model.parameters():
        if parameter.grad is None:
            continue
        if parameter not in of_experts:  # an expert already has the gradients of all ranks' tokens
            dist.all_reduce(parameter.grad)
        parameter.grad /= size


def train(comm, args, method, train_set):
    device = devices.use(args.gpu[comm.intra_rank])
    sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler, drop_last=True)

    model = transformer_runs.network(args, len(train_set.classes))
    layers = [Experts(args.width, args.experts, args.capacity_factor) for _ in model.blocks]
    for block, layer in zip(model.blocks, layers):
        block.mlp = layer
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    progress, load = transformer_runs.Progress(comm, method), experts_runs.Load(comm, layers)
    for epoch in range(args.epoch):
        sampler.set_epoch(epoch)
        for images, labels in transformer_runs.batches(train_loader, args, device):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            balance = sum(layer.balance for layer in layers)
            (loss + METHODS[method] * balance).backward()
            average_gradients(model, layers)
            optimizer.step()
            load.add()
        progress.add(loss.detach())
    load.write(args.out)
    progress.report(args, len(train_loader) * args.batchsize * comm.size * args.epoch)


if __name__ == "__main__":
    transformer_runs.train_each(train, METHODS, experts_runs.add_options)
