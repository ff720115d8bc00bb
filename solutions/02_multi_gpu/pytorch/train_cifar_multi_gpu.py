"""Train a network on several GPUs of one machine, a process for each. Options: python train_cifar_multi_gpu.py --help"""

import time

import torch
import torch.nn.functional as F
from pytorch_pfn_extras.reporting import report
from pytorch_pfn_extras.training import ExtensionsManager
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, random_split

from handson.pytorch import devices, extensions, workers
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.training import data, options, results
from handson.training.banner import announce


def train(comm, args, train_set, test_set):
    ### BEGIN SOLUTION device: `device`: `devices.use(id)` with a GPU of its own for every rank; args.gpu lists them by intra_rank
    device = devices.use(args.gpu[comm.intra_rank])
    ### END SOLUTION
    test_loader = DataLoader(test_set, args.batchsize)

    ### BEGIN SOLUTION split: cut the training set at random, alike on all ranks: `lengths` of all shards, and `shard`, this rank's
    lengths = [len(range(rank, len(train_set), comm.size)) for rank in range(comm.size)]
    shard = random_split(train_set, lengths, torch.Generator().manual_seed(args.seed))[comm.rank]
    ### END SOLUTION
    batches = EpochBatches(lengths, comm.rank, args.batchsize, args.seed)
    train_loader = DataLoader(shard, batch_sampler=batches)

    torch.manual_seed(args.seed)
    model = ConvNet(len(train_set.classes)).to(device)
    ### BEGIN SOLUTION replica: `replica`: the model, wrapped so that backward averages the gradients over the ranks
    replica = DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=True)
    ### END SOLUTION
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    def prepare(images, labels):
        return data.enlarge(images.to(device), args.size), labels.to(device)

    manager = ExtensionsManager(model, optimizer, args.epoch, iters_per_epoch=len(train_loader), out_dir=args.out)
    evaluator = extensions.Evaluator(test_loader, model, prepare)
    manager.extend(extensions.AllreducePersistent(model))
    for extension in extensions.reports(evaluator) if comm.rank == 0 else []:
        manager.extend(extension)
    first_epoch = extensions.resume(manager, args.resume, device)

    start = time.perf_counter()
    for epoch in range(first_epoch, args.epoch):
        ### BEGIN SOLUTION shuffle: let the sampler `batches` know which epoch this is, so that each one has an order of its own
        batches.set_epoch(epoch)
        ### END SOLUTION
        for (images, labels), total in zip(train_loader, batches.totals):
            images, labels = prepare(images, labels)
            with manager.run_iteration():
                ### BEGIN SOLUTION step: as on one GPU, but with `replica`; the mean of `loss` over the ranks must be the mean over the `total` images of the step
                optimizer.zero_grad()
                outputs = replica(images)
                loss = F.cross_entropy(outputs, labels, reduction="sum") * comm.size / total
                loss.backward()
                optimizer.step()
                ### END SOLUTION
                report({"main/loss": loss.detach(), "main/accuracy": extensions.accuracy(outputs, labels)})
    seconds = time.perf_counter() - start

    ### BEGIN SOLUTION throughput: how many `images` went through the network since `first_epoch` (not 0 in a resumed run), and what `throughput` a second is that?
    images = sum(lengths) * (args.epoch - first_epoch)
    throughput = images / seconds
    ### END SOLUTION
    if comm.rank == 0:
        results.report(args, throughput, images, seconds, evaluator.seconds, manager.get_extension("LogReport").log, comm.size, comm.nodes)


def main():
    args = options.parse(gpus=devices.first(2))
    train_set, test_set = data.load(args.dataset)
    announce("multiple GPUs", args, train_set, devices.describe(args.gpu))
    workers.start(train, args, train_set, test_set)


if __name__ == "__main__":
    main()
