"""Train a network on one GPU and measure the throughput. Options: python train_cifar_single_gpu.py --help"""

import time

import torch
import torch.nn.functional as F
from pytorch_pfn_extras.reporting import report
from pytorch_pfn_extras.training import ExtensionsManager
from torch.utils.data import DataLoader

from handson.pytorch import devices, extensions
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.training import data, options, results
from handson.training.banner import announce


def train(args, train_set, test_set):
    ### BEGIN SOLUTION device:
    ### `device`: what `devices.use(id)` returns for the first of the GPUs in args.gpu
    device = devices.use(args.gpu[0])
    ### END SOLUTION
    test_loader = DataLoader(test_set, args.batchsize)

    batches = EpochBatches([len(train_set)], 0, args.batchsize, args.seed)
    train_loader = DataLoader(train_set, batch_sampler=batches)

    torch.manual_seed(args.seed)
    model = ConvNet(len(train_set.classes)).to(device)
    ### BEGIN SOLUTION optimizer:
    ### `optimizer`: SGD over the parameters of `model`, with the learning rate args.lr and momentum
    ### 0.9
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    ### END SOLUTION

    def prepare(images, labels):
        return data.enlarge(images.to(device), args.size), labels.to(device)

    manager = ExtensionsManager(model, optimizer, args.epoch, iters_per_epoch=len(train_loader), out_dir=args.out)
    evaluator = extensions.Evaluator(test_loader, model, prepare)
    extensions.add_reports(manager, evaluator, model)
    first_epoch = extensions.resume(manager, args.resume, device)

    start = time.perf_counter()
    for epoch in range(first_epoch, args.epoch):
        ### BEGIN SOLUTION shuffle:
        ### let the sampler `batches` know which epoch this is, so that each one has an order of its
        ### own
        batches.set_epoch(epoch)
        ### END SOLUTION
        for images, labels in train_loader:
            images, labels = prepare(images, labels)
            with manager.run_iteration():
                ### BEGIN SOLUTION step:
                ### clear the gradients, then forward (`outputs` and the mean `loss` of the images),
                ### backward, and optimize
                optimizer.zero_grad()
                outputs = model(images)
                loss = F.cross_entropy(outputs, labels)
                loss.backward()
                optimizer.step()
                ### END SOLUTION
                report({"main/loss": loss.detach(), "main/accuracy": extensions.accuracy(outputs, labels)})
    seconds = time.perf_counter() - start

    ### BEGIN SOLUTION throughput:
    ### how many `images` went through the network since `first_epoch` (not 0 in a resumed run), and
    ### what `throughput` a second is that?
    images = len(train_set) * (args.epoch - first_epoch)
    throughput = images / seconds
    ### END SOLUTION
    results.finish(args, manager, evaluator, throughput, images, seconds)


def main():
    args = options.parse(gpus=[0])
    train_set, test_set = data.load(args.dataset)
    announce("a single GPU", args, train_set, devices.describe(args.gpu))
    train(args, train_set, test_set)


if __name__ == "__main__":
    main()
