"""Train on GPUs of which one is said to be faster: why so slow? python uneven_work.py --help"""

import os
import time
from fractions import Fraction

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, random_split

from handson.pytorch import devices
from handson.pytorch.batches import EpochBatches
from handson.pytorch.communicator import announce
from handson.pytorch.model import ConvNet
from handson.training import banner, data, launch, options, results


def average_gradients(model, weight):
    """Replace every gradient by its weighted mean over all ranks, with one message; `weight` is this rank's."""
    gradients = [parameter.grad for parameter in model.parameters()]
    message = weight * parameters_to_vector(gradients)
    dist.all_reduce(message)
    vector_to_parameters(message, gradients)


def train(rank, args, train_set):
    device = devices.use(args.gpu[rank])
    ### BEGIN SOLUTION shards:
    ### set `shards` to a list with a part of the training set for each rank, so that training is
    ### faster
    shares = [1] * dist.get_world_size()
    parts = [Fraction(share, sum(shares)) for share in shares]
    shards = random_split(train_set, parts, torch.Generator().manual_seed(args.seed))
    ### GIVEN # GPU 0 is newer, so it gets two images for each image of another GPU
    ### GIVEN shares = [2] + [1] * (dist.get_world_size() - 1)
    ### GIVEN parts = [Fraction(share, sum(shares)) for share in shares]
    ### GIVEN shards = random_split(train_set, parts, torch.Generator().manual_seed(args.seed))
    ### END SOLUTION
    # all ranks run the same number of steps, whatever their shares are
    batches = EpochBatches([len(shard) for shard in shards], rank, args.batchsize, args.seed)
    train_loader = DataLoader(shards[rank], batch_sampler=batches)

    torch.manual_seed(args.seed)
    model = ConvNet(len(train_set.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    table = banner.LossTable(rank)
    start = time.perf_counter()
    for epoch in range(args.epoch):
        batches.set_epoch(epoch)
        for (images, labels), total in zip(train_loader, batches.totals):
            images, labels = data.enlarge(images.to(device), args.size), labels.to(device)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model, len(images) / total)
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
