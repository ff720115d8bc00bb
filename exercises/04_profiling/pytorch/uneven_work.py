"""Train on several GPUs, of which one is said to be faster: why so slow? Options: python uneven_work.py --help"""

import time

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, random_split

from handson.pytorch import devices, workers
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.training import data, options, results
from handson.training.banner import announce


def train(comm, args, train_set, test_set):
    device = devices.use(args.gpu[comm.intra_rank])
    generator = torch.Generator().manual_seed(args.seed)
    # PUT YOUR CODE: `shards`: a part of the training set for every rank, so that no rank has to wait for
    # another
    speeds = [2] + [1] * (comm.size - 1)  # GPU 0 is a newer one
    shards = random_split(train_set, [speed / sum(speeds) for speed in speeds], generator)
    batches = EpochBatches([len(shard) for shard in shards], comm.rank, args.batchsize, args.seed)
    train_loader = DataLoader(shards[comm.rank], batch_sampler=batches)

    torch.manual_seed(args.seed)
    model = ConvNet(len(train_set.classes)).to(device)
    replica = DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    if comm.rank == 0:
        print("epoch  main/loss  elapsed_time")
    start = time.perf_counter()
    for epoch in range(args.epoch):
        batches.set_epoch(epoch)
        for (images, labels), total in zip(train_loader, batches.totals):
            images, labels = data.enlarge(images.to(device), args.size), labels.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(replica(images), labels, reduction="sum") * comm.size / total
            loss.backward()
            optimizer.step()
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
