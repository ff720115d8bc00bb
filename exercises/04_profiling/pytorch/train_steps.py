"""Train with the four steps of an iteration visible: python train_steps.py --help"""

import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.profiler import record_function
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices
from handson.pytorch.communicator import announce
from handson.pytorch.model import ConvNet
from handson.training import banner, data, launch, options, results


def average_gradients(model):
    """Replace every gradient by its mean over all ranks, with one message."""
    gradients = [parameter.grad for parameter in model.parameters()]
    message = parameters_to_vector(gradients) / dist.get_world_size()
    dist.all_reduce(message)
    vector_to_parameters(message, gradients)


def train(rank, args, train_set):
    device = devices.use(args.gpu[rank])
    sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)

    torch.manual_seed(args.seed)
    model = ConvNet(len(train_set.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    table = banner.LossTable(rank)
    start = time.perf_counter()
    for epoch in range(args.epoch):
        sampler.set_epoch(epoch)
        for images, labels in train_loader:
            images, labels = data.enlarge(images.to(device), args.size), labels.to(device)
            # PUT YOUR CODE: put each of the four steps into a range: forward (with the loss), backward, all-
            # reduce, optimize. `with record_function("forward"):` starts a range
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        table.add(loss.detach())
    seconds = time.perf_counter() - start

    if rank == 0:
        images = len(train_set) * args.epoch
        results.report(args, images / seconds, images, seconds, table.log)


def worker(rank, args, train_set):
    dist.init_process_group(devices.backend(args.gpu), rank=rank, world_size=len(args.gpu))
    train(rank, args, train_set)
    dist.destroy_process_group()


def main():
    args = options.parse(gpus=devices.first(2))
    train_set, _ = data.load(args.dataset)
    announce("multiple GPUs", args, train_set)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(launch.free_port())
    mp.spawn(worker, (args, train_set), nprocs=len(args.gpu))


if __name__ == "__main__":
    main()
