"""Train on several GPUs with all four steps of an iteration in the open. Options: python train_steps.py --help"""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.profiler import record_function
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices
from handson.pytorch.model import ConvNet
from handson.pytorch.profiling_helpers import average_gradients
from handson.pytorch.workers import TIMEOUT, communicator, spawn
from handson.training import data, options, results
from handson.training.banner import LossTable, announce


def train(comm, args, train_set, test_set):
    device = devices.use(args.gpu[comm.intra_rank])
    sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)

    torch.manual_seed(args.seed)
    model = ConvNet(len(train_set.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    table = LossTable(comm)
    start = time.perf_counter()
    for epoch in range(args.epoch):
        sampler.set_epoch(epoch)
        for images, labels in train_loader:
            images, labels = data.enlarge(images.to(device), args.size), labels.to(device)
            # PUT YOUR CODE: put the four steps into ranges: forward (with the loss), backward, all-reduce,
            # optimize; `with record_function("forward"):` begins one
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model, len(images))
            optimizer.step()
        table.add(loss.detach())
    seconds = time.perf_counter() - start

    if comm.rank == 0:
        images = len(train_set) * args.epoch
        results.report(args, images / seconds, images, seconds, table.log)


def worker(rank, meeting, args, train_set, test_set):
    backend = devices.backend(args.gpu)  # NCCL, or gloo without GPUs
    dist.init_process_group(backend, f"file://{meeting}", rank=rank, world_size=len(args.gpu), timeout=TIMEOUT)
    train(communicator(), args, train_set, test_set)


def main():
    args = options.parse(gpus=devices.first(2))
    train_set, test_set = data.load(args.dataset)
    announce("multiple GPUs", args, train_set, devices.describe(args.gpu))
    spawn(worker, args, train_set, test_set)


if __name__ == "__main__":
    main()
