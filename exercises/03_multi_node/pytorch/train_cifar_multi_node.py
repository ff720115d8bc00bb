"""Train a network on the GPUs of several nodes, a rank on each: mpiexec -n 4 python train_cifar_multi_node.py -h"""

import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset

from handson.pytorch import devices
from handson.pytorch.communicator import announce
from handson.pytorch.model import get_model
from handson.training import data, options, results
from handson.training.epoch_table import EpochTable


def train_step(model, optimizer, images, labels):
    """Run one iteration, and return the mean loss of the batch and the network's outputs."""
    # PUT YOUR CODE: as on one GPU, clear the gradients. Set `outputs` to the outputs of the network, and
    # `loss` to the mean loss of this rank's images (forward). Run backward, then let the optimizer update
    # the parameters
    raise NotImplementedError("PUT YOUR CODE: step")
    return loss.detach(), outputs.detach()


@torch.no_grad()
def evaluate(model, loader, device, size):
    """Return the mean loss and the accuracy on the test set; `loader` has this rank's part."""
    model.eval()
    for buffer in model.buffers():  # all ranks use rank 0's running statistics of BatchNorm
        dist.broadcast(buffer, 0)
    loss_sum, correct = 0.0, 0
    for images, labels in loader:
        images, labels = data.enlarge(images.to(device), size), labels.to(device)
        outputs = model(images)
        loss_sum += F.cross_entropy(outputs, labels, reduction="sum").item()
        correct += (outputs.argmax(dim=1) == labels).sum().item()
    model.train()
    # PUT YOUR CODE: set `loss` and `accuracy` to those of the whole test set, with the same values on all
    # ranks. Add up over the ranks: loss_sum, correct, and len(loader.dataset), the number of this rank's
    # images
    raise NotImplementedError("PUT YOUR CODE: evaluate")
    return loss, accuracy


def train(rank, args, train_set, test_set):
    # PUT YOUR CODE: set `device` to the result of `devices.use(id)`. Every rank of a node needs a
    # different GPU: args.gpu contains one id for each rank of the node, and the environment variable
    # LOCAL_RANK is this rank's number on its node
    raise NotImplementedError("PUT YOUR CODE: device")
    torch.manual_seed(args.seed)
    # PUT YOUR CODE: set `sampler` to a DistributedSampler, which gives every rank a different part of
    # train_set. The order of the images must depend on args.seed
    raise NotImplementedError("PUT YOUR CODE: sampler")
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)
    part = range(rank, len(test_set), dist.get_world_size())  # this rank's part of the test set
    test_loader = DataLoader(Subset(test_set, part), args.batchsize)

    model = get_model(args.model, len(train_set.classes)).to(device)
    # PUT YOUR CODE: set `replica` to the model, wrapped so that backward averages the gradients over the
    # ranks
    raise NotImplementedError("PUT YOUR CODE: replica")
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    table = EpochTable(lambda: evaluate(model, test_loader, device, args.size), speaks=rank == 0)
    table.begin()
    start = time.perf_counter()
    for epoch in range(args.epoch):
        # PUT YOUR CODE: pass the number of the epoch to `sampler`, so that each epoch has a different order
        raise NotImplementedError("PUT YOUR CODE: shuffle")
        loss_sum = correct = 0
        for images, labels in train_loader:
            images, labels = data.enlarge(images.to(device), args.size), labels.to(device)
            loss, outputs = train_step(replica, optimizer, images, labels)
            loss_sum += loss * len(labels)
            correct += (outputs.argmax(dim=1) == labels).sum()
        table.add(loss_sum / len(sampler), correct / len(sampler))
    seconds = time.perf_counter() - start

    # PUT YOUR CODE: set `images` to the number of images that all ranks together trained on in all
    # epochs, and `throughput` to the images per second
    raise NotImplementedError("PUT YOUR CODE: throughput")
    if rank == 0:
        results.report(args, throughput, images, seconds, table.log, table.seconds)


def main():
    args = options.parse(gpus=devices.first)
    # this call reads RANK, MASTER_ADDR, ...: torchrun sets them, or options.parse under mpiexec
    dist.init_process_group(devices.backend(args.gpu))
    train_set, test_set = data.load(args.dataset)
    announce("multiple nodes", args, train_set)
    train(dist.get_rank(), args, train_set, test_set)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
