"""Train with data_parallel.py, and buckets of several sizes: mpiexec -n 2 python train_data_parallel.py --help"""

import math

import data_parallel
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices, pytorch_method_runs
from handson.pytorch.communicator import meet
from handson.pytorch.model import DeepNet
from handson.pytorch.workers import TIMEOUT
from handson.training import data, options
from handson.training.banner import announce

# name -> bytes in a bucket; None: PyTorch's own DDP
METHODS = {"1-KB": 1e3, "300-KB": 3e5, "600-KB": 6e5, "one-bucket": math.inf, "torch-ddp": None}


def train(comm, args, method, train_set, test_set):
    device = devices.use(args.gpu[comm.intra_rank])
    sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)

    torch.manual_seed(args.seed + comm.rank)  # parameters of its own on each rank, until they are broadcast
    model = DeepNet(len(train_set.classes)).to(device)
    if method == "torch-ddp":
        replica, in_flight = DistributedDataParallel(model, broadcast_buffers=False), []  # no statistics from rank 0
    else:
        data_parallel.broadcast(model)
        buckets = data_parallel.fill_buckets(list(model.parameters()), METHODS[method])
        replica, in_flight = model, data_parallel.average_gradients(buckets)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    pytorch_method_runs.guard(comm, model, len(train_loader))

    progress = pytorch_method_runs.Progress(comm, method)
    for epoch in range(args.epoch):
        sampler.set_epoch(epoch)
        for images, labels in train_loader:
            images, labels = data.enlarge(images.to(device), args.size), labels.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(replica(images), labels)
            loss.backward()
            data_parallel.wait(in_flight)
            optimizer.step()
        progress.add(loss.detach(), model, test_set, args.size)
    progress.report(args, len(train_set) * args.epoch)


def main():
    args = options.parse(gpus=None, add_options=pytorch_method_runs.add_options(METHODS))
    with meet(args) as comm:  # MPI or torchrun says which rank this is, and where the others are
        dist.init_process_group(comm.backend, store=comm.store, rank=comm.rank, world_size=comm.size, timeout=TIMEOUT)
        train_set, test_set = data.load(args.dataset)
        announce("multiple nodes", args, train_set, comm.devices, comm)
        for method, seed in pytorch_method_runs.runs(args):
            train(comm, pytorch_method_runs.one_run(args, method, seed), method, train_set, test_set)


if __name__ == "__main__":
    main()
