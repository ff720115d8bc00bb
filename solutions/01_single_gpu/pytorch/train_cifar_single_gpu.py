"""Train a network on one GPU and measure the throughput. Options: python train_cifar_single_gpu.py --help"""

import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from handson.pytorch import devices
from handson.pytorch.communicator import announce
from handson.pytorch.model import get_model
from handson.training import data, options, results
from handson.training.epoch_table import EpochTable


def train_step(model, optimizer, images, labels):
    """Run one iteration, and return the mean loss of the batch and the network's outputs."""
    ### BEGIN SOLUTION step:
    ### clear the gradients. Set `outputs` to the outputs of the network, and `loss` to the mean
    ### loss of the images (forward). Run backward, then let the optimizer update the parameters
    optimizer.zero_grad()
    outputs = model(images)
    loss = F.cross_entropy(outputs, labels)
    loss.backward()
    optimizer.step()
    ### END SOLUTION
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


def train(args, train_set, test_set):
    ### BEGIN SOLUTION device:
    ### set `device` to the result of `devices.use(id)`, where `id` is the first GPU in args.gpu
    device = devices.use(args.gpu[0])
    ### END SOLUTION
    torch.manual_seed(args.seed)
    ### BEGIN SOLUTION loader:
    ### set `train_loader` to a DataLoader of train_set, with batches of args.batchsize images, in a
    ### new random order every epoch
    train_loader = DataLoader(train_set, args.batchsize, shuffle=True)
    ### END SOLUTION
    test_loader = DataLoader(test_set, args.batchsize)

    model = get_model(args.model, len(train_set.classes)).to(device)
    ### BEGIN SOLUTION optimizer:
    ### set `optimizer` to SGD for the parameters of `model`, with learning rate args.lr and
    ### momentum 0.9
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    ### END SOLUTION

    table = EpochTable(lambda: evaluate(model, test_loader, device, args.size))
    table.begin()
    start = time.perf_counter()
    for epoch in range(args.epoch):
        loss_sum = correct = 0
        for images, labels in train_loader:
            images, labels = data.enlarge(images.to(device), args.size), labels.to(device)
            loss, outputs = train_step(model, optimizer, images, labels)
            loss_sum += loss * len(labels)
            correct += (outputs.argmax(dim=1) == labels).sum()
        table.add(loss_sum / len(train_set), correct / len(train_set))
    seconds = time.perf_counter() - start

    ### BEGIN SOLUTION throughput:
    ### set `images` to the number of images that the network trained on in all epochs, and
    ### `throughput` to the images per second
    images = len(train_set) * args.epoch
    throughput = images / seconds
    ### END SOLUTION
    results.report(args, throughput, images, seconds, table.log, table.seconds)


def main():
    args = options.parse(gpus=[0])
    train_set, test_set = data.load(args.dataset)
    announce("a single GPU", args, train_set)
    train(args, train_set, test_set)


if __name__ == "__main__":
    main()
