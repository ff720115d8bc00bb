"""Train a network on several GPUs of one machine, a process for each: python train_cifar_multi_gpu.py --help"""

import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices
from handson.pytorch.communicator import announce
from handson.pytorch.model import get_model
from handson.training import data, launch, options, results
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
    """Return the mean loss and the accuracy on the test set."""
    model.eval()
    loss_sum, correct = 0.0, 0
    for images, labels in loader:
        images, labels = data.enlarge(images.to(device), size), labels.to(device)
        outputs = model(images)
        loss_sum += F.cross_entropy(outputs, labels, reduction="sum").item()
        correct += (outputs.argmax(dim=1) == labels).sum().item()
    model.train()
    return loss_sum / len(loader.dataset), correct / len(loader.dataset)


def train(rank, args, train_set, test_set):
    # PUT YOUR CODE: set `device` to the result of `devices.use(id)`. Every rank needs a different GPU:
    # args.gpu contains one id for each rank
    raise NotImplementedError("PUT YOUR CODE: device")
    torch.manual_seed(args.seed)
    # PUT YOUR CODE: set `sampler` to a DistributedSampler, which gives every rank a different part of
    # train_set. The order of the images must depend on args.seed
    raise NotImplementedError("PUT YOUR CODE: sampler")
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)
    test_loader = DataLoader(test_set, args.batchsize)

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
        if rank == 0:
            table.add(loss_sum / len(sampler), correct / len(sampler))
    seconds = time.perf_counter() - start

    # PUT YOUR CODE: set `images` to the number of images that all ranks together trained on in all
    # epochs, and `throughput` to the images per second
    raise NotImplementedError("PUT YOUR CODE: throughput")
    if rank == 0:
        results.report(args, throughput, images, seconds, table.log, table.seconds)


def worker(rank, args, train_set, test_set):
    dist.init_process_group(devices.backend(args.gpu), rank=rank, world_size=len(args.gpu))
    train(rank, args, train_set, test_set)
    dist.destroy_process_group()


def main():
    args = options.parse(gpus=devices.first(2))
    train_set, test_set = data.load(args.dataset)
    announce("multiple GPUs", args, train_set)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(launch.free_port())
    mp.spawn(worker, (args, train_set, test_set), nprocs=len(args.gpu))


if __name__ == "__main__":
    main()
