"""Train with Accelerate, in the ranks that mpiexec or torchrun has started: mpiexec -n 2 python
train_cifar_accelerate.py --help"""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from pytorch_pfn_extras.reporting import report
from pytorch_pfn_extras.training import ExtensionsManager
from torch.utils.data import DataLoader

from handson.pytorch import devices, extensions
from handson.pytorch.accelerating import accelerate
from handson.pytorch.batches import EpochBatches
from handson.pytorch.communicator import meet, scatter_dataset
from handson.pytorch.model import ConvNet
from handson.pytorch.workers import TIMEOUT
from handson.training import data, options, results
from handson.training.banner import announce


def train(comm, args, train_set, test_set):
    device = devices.use(args.gpu[comm.intra_rank])
    test_loader = DataLoader(scatter_dataset(test_set, comm, args.seed), args.batchsize)

    shard = scatter_dataset(train_set, comm, args.seed)
    lengths = comm.allgather(len(shard))
    # DistributedSampler would repeat or drop images
    batches = EpochBatches(lengths, comm.rank, args.batchsize, args.seed)
    train_loader = DataLoader(shard, batch_sampler=batches)

    torch.manual_seed(args.seed)
    model = ConvNet(len(shard.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    accelerator = accelerate(device)
    # PUT YOUR CODE: `replica` and `optimizer`: the model and its optimizer, prepared by Accelerate; what
    # about `train_loader`, which has this rank's images already?
    raise NotImplementedError("PUT YOUR CODE: prepare")

    def prepare(images, labels):
        return data.enlarge(images.to(device), args.size), labels.to(device)

    manager = ExtensionsManager(model, optimizer, args.epoch, iters_per_epoch=len(train_loader), out_dir=args.out)
    evaluator = extensions.Evaluator(test_loader, model, prepare, all_ranks=True)
    extensions.add_reports(manager, evaluator, model, everywhere=True)
    first_epoch = extensions.resume(manager, args.resume, device)

    start = time.perf_counter()
    for epoch in range(first_epoch, args.epoch):
        batches.set_epoch(epoch)
        for (images, labels), total in zip(train_loader, batches.totals):
            images, labels = prepare(images, labels)
            with manager.run_iteration():
                # PUT YOUR CODE: as in the DDP script, but Accelerate goes backward; the mean of `loss` over the ranks
                # must be the mean over the `total` images of the step
                raise NotImplementedError("PUT YOUR CODE: step")
                report({"main/loss": loss.detach(), "main/accuracy": extensions.accuracy(outputs, labels)})
    seconds = time.perf_counter() - start

    images = sum(lengths) * (args.epoch - first_epoch)
    throughput = images / seconds
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
