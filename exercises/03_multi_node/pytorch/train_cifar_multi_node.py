"""Train a network on the GPUs of several nodes, an MPI rank for each: mpiexec -n 4 python train_cifar_multi_node.py
--help"""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from pytorch_pfn_extras.reporting import report
from pytorch_pfn_extras.training import ExtensionsManager
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from handson.pytorch import devices, extensions
from handson.pytorch.batches import EpochBatches
from handson.pytorch.communicator import meet, scatter_dataset
from handson.pytorch.model import ConvNet
from handson.pytorch.workers import TIMEOUT
from handson.training import data, options, results
from handson.training.banner import announce


def train(comm, args, train_set, test_set):
    # PUT YOUR CODE: `device`: `devices.use(id)` with a GPU of its own for every rank of a node; args.gpu
    # lists those of the node by intra_rank
    raise NotImplementedError("PUT YOUR CODE: device")
    test_loader = DataLoader(scatter_dataset(test_set, comm, args.seed), args.batchsize)

    # PUT YOUR CODE: rank 0 deals the training set out at random, by args.seed: `shard`, what this rank
    # gets, and `lengths`, of all ranks' shards
    raise NotImplementedError("PUT YOUR CODE: scatter")
    # DistributedSampler would repeat or drop images
    batches = EpochBatches(lengths, comm.rank, args.batchsize, args.seed)
    train_loader = DataLoader(shard, batch_sampler=batches)

    torch.manual_seed(args.seed)
    model = ConvNet(len(shard.classes)).to(device)
    # PUT YOUR CODE: `replica`: the model, wrapped so that backward averages the gradients over the ranks
    raise NotImplementedError("PUT YOUR CODE: replica")
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    def prepare(images, labels):
        return data.enlarge(images.to(device), args.size), labels.to(device)

    manager = ExtensionsManager(model, optimizer, args.epoch, iters_per_epoch=len(train_loader), out_dir=args.out)
    # PUT YOUR CODE: `evaluator`: every rank evaluates its part of the test set, and the parts are put
    # together
    raise NotImplementedError("PUT YOUR CODE: evaluator")
    extensions.add_reports(manager, evaluator, model, everywhere=True)
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

    # PUT YOUR CODE: how many `images` all ranks together trained on since `first_epoch` (not 0 in a
    # resumed run), and what `throughput` a second is that? `train_set` is None on most ranks
    raise NotImplementedError("PUT YOUR CODE: throughput")
    results.finish(args, manager, evaluator, throughput, images, seconds)


def main():
    args = options.parse(gpus=None)
    with meet(args) as comm:  # MPI or torchrun says which rank this is, and where the others are
        dist.init_process_group(comm.backend, store=comm.store, rank=comm.rank, world_size=comm.size, timeout=TIMEOUT)
        train_set, test_set = comm.load_on_rank_0(args)
        announce("multiple nodes", args, train_set, comm.devices, comm)
        train(comm, args, train_set, test_set)


if __name__ == "__main__":
    main()
