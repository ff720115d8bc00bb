"""Train a network that is split between its layers; each rank is a stage: mpiexec -n 2 python train_pipeline.py
--help"""

import pipeline
import schedules
import torch
import torch.nn.functional as F
import torch_pipeline
from torch import nn
from torch.utils.data import DataLoader

from handson.pytorch import devices, stages, transformer_runs
from handson.training import transformer_options

METHODS = {  # name -> the order of a stage's operations
    "naive": schedules.gpipe,  # the whole batch is one micro-batch
    "gpipe": schedules.gpipe,
    "1f1b": schedules.one_forward_one_backward,
    "torch-gpipe": schedules.gpipe,  # torch.distributed.pipelining, for comparison
    "torch-1f1b": schedules.one_forward_one_backward,
    "torch-interleaved": None,  # PyTorch makes these two: each rank has two chunks of the network
    "torch-zero-bubble": None,
}


def train(comm, args, method, train_set):
    device = devices.use(args.gpu[comm.intra_rank])
    if stages.left_out(method, device):
        return
    # all ranks load the same batches: the first rank needs the images, the last rank the labels
    order = torch.Generator().manual_seed(args.seed)
    train_loader = DataLoader(train_set, args.batchsize, shuffle=True, drop_last=True, generator=order)
    micro_batches = 1 if method == "naive" else args.micro_batches
    chunks, layers = 1 if METHODS[method] else torch_pipeline.CHUNKS, args.blocks + 2
    schedule = [METHODS[method](stage, comm.size, micro_batches) if chunks == 1 else [] for stage in range(comm.size)]
    stages.check(schedule, layers, args.batchsize, micro_batches, chunks)

    networks = []
    for chunk in range(chunks):
        mine = pipeline.my_layers(layers, chunk * comm.size + comm.rank, chunks * comm.size)
        networks.append(nn.Sequential(*transformer_runs.layers(args, len(train_set.classes), mine)).to(device))
    optimizer = torch.optim.Adam(nn.ModuleList(networks).parameters(), lr=args.lr)
    like = transformer_runs.tokens(args, args.batchsize // micro_batches).to(device)
    name, options = method.removeprefix("torch-"), (micro_batches, F.cross_entropy, device)
    if chunks > 1:
        of_torch = torch_pipeline.make_interleaved(name, networks, *options)
        schedule = stages.order(of_torch)
    elif method.startswith("torch-"):
        of_torch = torch_pipeline.make_schedule(name, networks[0], *options)

    def step(images, labels):
        optimizer.zero_grad()
        if method.startswith("torch-"):
            loss = stages.torch_step(of_torch, images, labels)
        else:
            parts = images.chunk(micro_batches), labels.chunk(micro_batches)
            loss = pipeline.step(schedule[comm.rank], networks[0], *parts, like, F.cross_entropy)
        optimizer.step()
        return loss

    progress = transformer_runs.Progress(comm, method)
    for epoch in range(args.epoch):
        for images, labels in transformer_runs.batches(train_loader, args, device):
            loss = step(images, labels)
        progress.add(stages.of_last_rank(loss))
    with stages.measured(comm, args.out, schedule):
        step(images, labels)
    progress.report(args, len(train_loader) * args.batchsize * args.epoch)


if __name__ == "__main__":
    transformer_runs.train_each(train, METHODS, transformer_options.add_pipeline)
