"""Train with Accelerate on ranks that mpiexec or torchrun started: mpiexec -n 2 python
train_cifar_accelerate.py --help"""

import os
import time

from handson.accelerate import use_gpu

import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader

from handson.pytorch import devices
from handson.pytorch.communicator import announce
from handson.pytorch.model import get_model
from handson.training import data, options, results
from handson.training.epoch_table import EpochTable


def train_step(accelerator, model, optimizer, images, labels):
    """Run one step with a batch. Return the mean loss of its images, and the network's outputs."""
    # PUT YOUR CODE: clear the gradients. Compute `outputs` and the mean `loss` of this rank's images.
    # Call accelerator.backward(loss) instead of loss.backward(), then run the optimizer step
    raise NotImplementedError("PUT YOUR CODE: step")
    return loss.detach(), outputs.detach()


@torch.no_grad()
def evaluate(accelerator, model, loader, size):
    """Return the mean loss and the accuracy on the test set. All ranks get the same values."""
    model.eval()
    loss_sum = correct = 0
    for images, labels in loader:
        outputs = model(data.enlarge(images, size))
        # the outputs and labels of all ranks, without the images that were repeated to fill the last batches
        outputs, labels = accelerator.gather_for_metrics((outputs, labels))
        loss_sum += F.cross_entropy(outputs, labels, reduction="sum").item()
        correct += (outputs.argmax(dim=1) == labels).sum().item()
    model.train()
    return loss_sum / len(loader.dataset), correct / len(loader.dataset)


def train(args, train_set, test_set):
    use_gpu(args.gpu[int(os.environ["LOCAL_RANK"])])
    accelerator = Accelerator()
    torch.manual_seed(args.seed)
    train_loader = DataLoader(train_set, args.batchsize, shuffle=True)
    test_loader = DataLoader(test_set, args.batchsize)

    model = get_model(args.model, len(train_set.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    # PUT YOUR CODE: set `model`, `optimizer`, `train_loader` and `test_loader` to the objects that
    # accelerator.prepare returns for them. Then gradients are averaged, and each rank gets its part of
    # the images
    raise NotImplementedError("PUT YOUR CODE: prepare")

    rank = accelerator.process_index
    table = EpochTable(lambda: evaluate(accelerator, model, test_loader, args.size), speaks=rank == 0)
    table.begin()
    start = time.perf_counter()
    for _ in range(args.epoch):
        loss_sum = correct = seen = 0  # sums over this rank's images
        for images, labels in train_loader:
            images = data.enlarge(images, args.size)
            loss, outputs = train_step(accelerator, model, optimizer, images, labels)
            loss_sum += loss * len(labels)
            correct += (outputs.argmax(dim=1) == labels).sum()
            seen += len(labels)
        table.add(loss_sum / seen, correct / seen)
    seconds = time.perf_counter() - start

    images = len(train_set) * args.epoch
    if rank == 0:
        results.report(args, images / seconds, images, seconds, table.log, table.seconds)


def main():
    args = options.parse(gpus=devices.first)
    dist.init_process_group(devices.backend(args.gpu))
    train_set, test_set = data.load(args.dataset)
    announce("multiple nodes", args, train_set)
    train(args, train_set, test_set)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
