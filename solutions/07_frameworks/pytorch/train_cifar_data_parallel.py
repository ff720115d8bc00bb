"""Train with DataParallel: one process with a thread for each GPU. Options: python train_cifar_data_parallel.py
--help"""

import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from handson.pytorch import devices
from handson.pytorch.data_parallel import data_parallel
from handson.pytorch.model import get_model
from handson.training import data, options, results
from handson.training.banner import announce
from handson.training.epoch_table import EpochTable


def train_step(model, optimizer, images, labels):
    """Run one step with a batch. Return the mean loss of its images, and the network's outputs."""
    optimizer.zero_grad()
    outputs = model(images)
    loss = F.cross_entropy(outputs, labels)  # on the first GPU, for the images of all GPUs
    loss.backward()
    optimizer.step()
    return loss.detach(), outputs.detach()


@torch.no_grad()
def evaluate(model, loader, device, size):
    """Return the mean loss and the accuracy on the test set."""
    model.eval()
    loss_sum = correct = 0
    for images, labels in loader:
        images, labels = data.enlarge(images.to(device), size), labels.to(device)
        outputs = model(images)
        loss_sum += F.cross_entropy(outputs, labels, reduction="sum").item()
        correct += (outputs.argmax(dim=1) == labels).sum().item()
    model.train()
    return loss_sum / len(loader.dataset), correct / len(loader.dataset)


def train(args, train_set, test_set):
    device = devices.use_all(args.gpu)
    torch.manual_seed(args.seed)
    # DataParallel splits each batch
    train_loader = DataLoader(train_set, args.batchsize * len(args.gpu), shuffle=True)
    test_loader = DataLoader(test_set, args.batchsize)

    model = get_model(args.model, len(train_set.classes)).to(device)
    replica = data_parallel(model, args.gpu)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    table = EpochTable(lambda: evaluate(model, test_loader, device, args.size))
    table.begin()
    start = time.perf_counter()
    for _ in range(args.epoch):
        loss_sum = correct = 0
        for images, labels in train_loader:
            images, labels = data.enlarge(images.to(device), args.size), labels.to(device)
            loss, outputs = train_step(replica, optimizer, images, labels)
            loss_sum += loss * len(labels)
            correct += (outputs.argmax(dim=1) == labels).sum()
        table.add(loss_sum / len(train_set), correct / len(train_set))
    seconds = time.perf_counter() - start

    images = len(train_set) * args.epoch
    results.report(args, images / seconds, images, seconds, table.log, table.seconds)


def main():
    args = options.parse(gpus=devices.first(2))
    train_set, test_set = data.load(args.dataset)
    announce("multiple GPUs", args, train_set, devices.describe_threads(args.gpu))
    train(args, train_set, test_set)


if __name__ == "__main__":
    main()
