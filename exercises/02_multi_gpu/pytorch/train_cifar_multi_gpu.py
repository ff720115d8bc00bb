"""Train a network on several GPUs of one machine, a process for each: python train_cifar_multi_gpu.py --help"""

import time
from fractions import Fraction

import torch
import torch.distributed as dist
import torch.nn.functional as F
from pytorch_pfn_extras.reporting import report
from pytorch_pfn_extras.training import ExtensionsManager
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, random_split

from handson.pytorch import devices, extensions
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.pytorch.workers import TIMEOUT, communicator, spawn
from handson.training import data, options, results
from handson.training.banner import announce


def train(comm, args, train_set, test_set):
    # PUT YOUR CODE: `device`: `devices.use(id)` with a GPU of its own for every rank; args.gpu lists them
    # by intra_rank
    raise NotImplementedError("PUT YOUR CODE: device")
    test_loader = DataLoader(test_set, args.batchsize)

    # PUT YOUR CODE: cut the training set at random, on all ranks in the same way (by args.seed):
    # `lengths` of all shards, and `shard`, this rank's
    raise NotImplementedError("PUT YOUR CODE: split")
    # DistributedSampler would repeat or drop images
    batches = EpochBatches(lengths, comm.rank, args.batchsize, args.seed)
    train_loader = DataLoader(shard, batch_sampler=batches)

    torch.manual_seed(args.seed)
    model = ConvNet(len(train_set.classes)).to(device)
    # PUT YOUR CODE: `replica`: the model, wrapped so that backward averages the gradients over the ranks
    raise NotImplementedError("PUT YOUR CODE: replica")
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    def prepare(images, labels):
        return data.enlarge(images.to(device), args.size), labels.to(device)

    manager = ExtensionsManager(model, optimizer, args.epoch, iters_per_epoch=len(train_loader), out_dir=args.out)
    evaluator = extensions.Evaluator(test_loader, model, prepare)
    extensions.add_reports(manager, evaluator, model)
    first_epoch = extensions.resume(manager, args.resume, device)

    start = time.perf_counter()
    for epoch in range(first_epoch, args.epoch):
        # PUT YOUR CODE: let the sampler `batches` know which epoch this is, so that each one has an order of
        # its own
        raise NotImplementedError("PUT YOUR CODE: shuffle")
        for (images, labels), total in zip(train_loader, batches.totals):
            images, labels = prepare(images, labels)
            with manager.run_iteration():
                # PUT YOUR CODE: as on one GPU, but with `replica`; the mean of `loss` over the ranks must be the mean
                # over the `total` images of the step
                raise NotImplementedError("PUT YOUR CODE: step")
                report({"main/loss": loss.detach(), "main/accuracy": extensions.accuracy(outputs, labels)})
    seconds = time.perf_counter() - start

    # PUT YOUR CODE: how many `images` went through the network since `first_epoch` (not 0 in a resumed
    # run), and what `throughput` a second is that?
    raise NotImplementedError("PUT YOUR CODE: throughput")
    results.finish(args, manager, evaluator, throughput, images, seconds)


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
