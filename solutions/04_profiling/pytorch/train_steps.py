"""Train on several GPUs with all four steps of an iteration in the open: the all-reduce, too. Options: python train_steps.py --help"""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.profiler import record_function
from torch.utils.data import DataLoader, random_split

from handson.pytorch import devices, workers
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.training import data, options, results
from handson.training.banner import announce


def average_gradients(model, comm):
    """Replace every gradient by its mean over the ranks, all in one message."""
    gradients = [parameter.grad for parameter in model.parameters()]
    together = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(together)
    means = (together / comm.size).split([gradient.numel() for gradient in gradients])
    for gradient, mean in zip(gradients, means):
        gradient.copy_(mean.view_as(gradient))


def train(comm, args, train_set, test_set):
    device = devices.use(args.gpu[comm.intra_rank])
    shards = random_split(train_set, [1 / comm.size] * comm.size, torch.Generator().manual_seed(args.seed))
    batches = EpochBatches([len(shard) for shard in shards], comm.rank, args.batchsize, args.seed)
    train_loader = DataLoader(shards[comm.rank], batch_sampler=batches)

    torch.manual_seed(args.seed)
    model = ConvNet(len(train_set.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    if comm.rank == 0:
        print("epoch  main/loss  elapsed_time")
    start = time.perf_counter()
    for epoch in range(args.epoch):
        batches.set_epoch(epoch)
        for (images, labels), total in zip(train_loader, batches.totals):
            images, labels = data.enlarge(images.to(device), args.size), labels.to(device)
            ### BEGIN SOLUTION mark: put the four steps into ranges: forward (with the loss), backward, all-reduce, optimize; `with record_function("forward"):` begins one
            with record_function("forward"):
                outputs = model(images)
                loss = F.cross_entropy(outputs, labels, reduction="sum") * comm.size / total
            with record_function("backward"):
                optimizer.zero_grad()
                loss.backward()
            with record_function("all-reduce"):
                average_gradients(model, comm)
            with record_function("optimize"):
                optimizer.step()
            ### GIVEN outputs = model(images)
            ### GIVEN loss = F.cross_entropy(outputs, labels, reduction="sum") * comm.size / total
            ### GIVEN optimizer.zero_grad()
            ### GIVEN loss.backward()
            ### GIVEN average_gradients(model, comm)
            ### GIVEN optimizer.step()
            ### END SOLUTION
        if comm.rank == 0:
            print(f"{epoch + 1:<6} {loss.item():<9.4f}  {time.perf_counter() - start:.2f}")
    seconds = time.perf_counter() - start

    if comm.rank == 0:
        images = len(train_set) * args.epoch
        results.report(args, images / seconds, images, seconds, 0, [], comm.size, comm.nodes)


def main():
    args = options.parse(gpus=devices.first(2))
    train_set, test_set = data.load(args.dataset)
    announce("multiple GPUs", args, train_set, devices.describe(args.gpu))
    workers.start(train, args, train_set, test_set)


if __name__ == "__main__":
    main()
