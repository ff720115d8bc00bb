"""Train with local SGD and block momentum (local_sgd.py): mpiexec -n 2 python train_local_sgd.py
--help"""

import os

import torch
import torch.nn.functional as F
from local_sgd import Block, after_step
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices, pytorch_method_runs
from handson.pytorch.model import WideNet
from handson.training import data

METHODS = {  # name -> (steps between two averages, block momentum; Chen and Huo use 1 - 1/N for N ranks)
    "local-sgd-1": (1, 0.0),
    "local-sgd-4": (4, 0.0),
    "local-sgd-12": (12, 0.0),
    "local-sgd-36": (36, 0.0),
    "block-momentum-4": (4, 0.5),
    "block-momentum-12": (12, 0.5),
}


def train(rank, args, method, train_set, test_set):
    device = devices.use(args.gpu[int(os.environ["LOCAL_RANK"])])
    sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)

    torch.manual_seed(args.seed)  # all ranks start with the same parameters
    model = WideNet(len(train_set.classes)).to(device)
    start = parameters_to_vector(model.parameters()).detach()
    block = Block(start, *METHODS[method])
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    pytorch_method_runs.guard(model, len(train_loader))

    progress = pytorch_method_runs.Progress(rank, method)
    for epoch in range(args.epoch):
        sampler.set_epoch(epoch)
        for images, labels in train_loader:
            images, labels = data.enlarge(images.to(device), args.size), labels.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            after_step(model, block)
        progress.add(loss.detach(), model, test_set, args.size)
    progress.report(args, len(train_set) * args.epoch)


if __name__ == "__main__":
    pytorch_method_runs.train_each(train, METHODS)
