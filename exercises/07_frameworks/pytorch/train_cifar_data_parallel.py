"""Train with DataParallel: one process, which has a thread for each GPU. Options: python train_cifar_data_parallel.py
--help"""

import time

import torch
import torch.nn.functional as F
from pytorch_pfn_extras.reporting import report
from pytorch_pfn_extras.training import ExtensionsManager
from torch.utils.data import DataLoader

from handson.pytorch import devices, extensions
from handson.pytorch.batches import EpochBatches
from handson.pytorch.data_parallel import data_parallel
from handson.pytorch.model import ConvNet
from handson.training import data, options, results
from handson.training.banner import announce


def train(args, train_set, test_set):
    device = devices.use_all(args.gpu)
    test_loader = DataLoader(test_set, args.batchsize)

    # DataParallel divides each batch
    batches = EpochBatches([len(train_set)], 0, args.batchsize * len(args.gpu), args.seed)
    train_loader = DataLoader(train_set, batch_sampler=batches)

    torch.manual_seed(args.seed)
    model = ConvNet(len(train_set.classes)).to(device)
    replica = data_parallel(model, args.gpu)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    def prepare(images, labels):
        return data.enlarge(images.to(device), args.size), labels.to(device)

    manager = ExtensionsManager(model, optimizer, args.epoch, iters_per_epoch=len(train_loader), out_dir=args.out)
    evaluator = extensions.Evaluator(test_loader, model, prepare)
    extensions.add_reports(manager, evaluator, model)

    start = time.perf_counter()
    for epoch in range(args.epoch):
        batches.set_epoch(epoch)
        for images, labels in train_loader:
            images, labels = prepare(images, labels)
            with manager.run_iteration():
                optimizer.zero_grad()
                outputs = replica(images)
                loss = F.cross_entropy(outputs, labels)  # on the first GPU, of the images of all
                loss.backward()
                optimizer.step()
                report({"main/loss": loss.detach(), "main/accuracy": extensions.accuracy(outputs, labels)})
    seconds = time.perf_counter() - start

    images = sum(batches.totals) * args.epoch
    results.finish(args, manager, evaluator, images / seconds, images, seconds)


def main():
    args = options.parse(gpus=devices.first(2))
    train_set, test_set = data.load(args.dataset)
    announce("multiple GPUs", args, train_set, devices.describe_threads(args.gpu))
    train(args, train_set, test_set)


if __name__ == "__main__":
    main()
