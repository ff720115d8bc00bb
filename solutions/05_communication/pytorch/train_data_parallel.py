"""Train with data_parallel.py and several bucket sizes: mpiexec -n 2 python train_data_parallel.py --help"""

import math
import os

import data_parallel
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices, pytorch_method_runs
from handson.pytorch.model import DeepNet
from handson.training import data

# name -> bucket size in bytes; None: PyTorch's own DDP
METHODS = {"1-KB": 1e3, "300-KB": 3e5, "600-KB": 6e5, "one-bucket": math.inf, "torch-ddp": None}


def train(rank, args, method, train_set, test_set):
    device = devices.use(args.gpu[int(os.environ["LOCAL_RANK"])])
    sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)

    torch.manual_seed(args.seed + rank)  # different parameters on each rank, until they are broadcast
    model = DeepNet(len(train_set.classes)).to(device)
    if method == "torch-ddp":
        replica, buckets = DistributedDataParallel(model), []
    else:
        data_parallel.broadcast(model)
        lists = data_parallel.fill_buckets(list(model.parameters()), METHODS[method])
        replica, buckets = model, [data_parallel.Bucket(parameters) for parameters in lists]
    for bucket in buckets:
        bucket.register()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    pytorch_method_runs.guard(model, len(train_loader))

    progress = pytorch_method_runs.Progress(rank, method)
    for epoch in range(args.epoch):
        sampler.set_epoch(epoch)
        for images, labels in train_loader:
            images, labels = data.enlarge(images.to(device), args.size), labels.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(replica(images), labels)
            loss.backward()
            for bucket in buckets:
                bucket.wait()
            optimizer.step()
        progress.add(loss.detach(), model, test_set, args.size)
    progress.report(args, len(train_set) * args.epoch)


if __name__ == "__main__":
    pytorch_method_runs.train_each(train, METHODS)
