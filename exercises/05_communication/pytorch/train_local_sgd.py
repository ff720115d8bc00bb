"""Train with local SGD and block momentum, the functions of local_sgd.py: mpiexec -n 2 python train_local_sgd.py
--help"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from local_sgd import Block, after_step
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices, messages, pytorch_method_runs
from handson.pytorch.communicator import meet
from handson.pytorch.model import WideNet
from handson.pytorch.workers import TIMEOUT
from handson.training import data, options
from handson.training.banner import announce

METHODS = {  # name -> (steps between two averages, block momentum: Chen and Huo take 1 - 1/N for N ranks)
    "local-sgd-1": (1, 0.0),
    "local-sgd-4": (4, 0.0),
    "local-sgd-12": (12, 0.0),
    "local-sgd-36": (36, 0.0),
    "block-momentum-4": (4, 0.5),
    "block-momentum-12": (12, 0.5),
}


def train(comm, args, method, train_set, test_set):
    device = devices.use(args.gpu[comm.intra_rank])
    sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)

    torch.manual_seed(args.seed)  # all ranks begin with the same parameters
    model = WideNet(len(train_set.classes)).to(device)
    block = Block(messages.vector(model), *METHODS[method])
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    pytorch_method_runs.guard(comm, model, len(train_loader))

    progress = pytorch_method_runs.Progress(comm, method)
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
