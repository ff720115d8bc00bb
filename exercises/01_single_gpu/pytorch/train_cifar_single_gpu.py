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
    # PUT YOUR CODE: `device`: what `devices.use(id)` returns for the first of the GPUs in args.gpu
    raise NotImplementedError("PUT YOUR CODE: device")
    test_loader = DataLoader(test_set, args.batchsize)

    batches = EpochBatches([len(train_set)], 0, args.batchsize, args.seed)
    train_loader = DataLoader(train_set, batch_sampler=batches)

    torch.manual_seed(args.seed)
    model = ConvNet(len(train_set.classes)).to(device)
    # PUT YOUR CODE: `optimizer`: SGD over the parameters of `model`, with the learning rate args.lr and
    # momentum 0.9
    raise NotImplementedError("PUT YOUR CODE: optimizer")

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
        for images, labels in train_loader:
            images, labels = prepare(images, labels)
            with manager.run_iteration():
                # PUT YOUR CODE: clear the gradients, then forward (`outputs` and the mean `loss` of the images),
                # backward, and optimize
                raise NotImplementedError("PUT YOUR CODE: step")
                report({"main/loss": loss.detach(), "main/accuracy": extensions.accuracy(outputs, labels)})
    seconds = time.perf_counter() - start

    # PUT YOUR CODE: how many `images` went through the network since `first_epoch` (not 0 in a resumed
    # run), and what `throughput` a second is that?
    raise NotImplementedError("PUT YOUR CODE: throughput")
    results.finish(args, manager, evaluator, throughput, images, seconds)


def main():
    args = options.parse(gpus=[0])
    train_set, test_set = data.load(args.dataset)
    announce("a single GPU", args, train_set, devices.describe(args.gpu))
    train(args, train_set, test_set)


if __name__ == "__main__":
    main()
