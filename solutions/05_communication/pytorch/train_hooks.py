"""Train with the communication hooks of hooks.py and half_and_late.py: mpiexec -n 2 python train_hooks.py --help"""

import os
from functools import partial

import half_and_late
import hooks
import torch
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices, pytorch_method_runs
from handson.pytorch.model import WideNet
from handson.training import data

METHODS = {  # name -> the hook (powersgd: torch's own), and a function that creates its state
    "plain": (hooks.plain, lambda: None),
    "float16": (half_and_late.half, lambda: torch.float16),
    "bfloat16": (half_and_late.half, lambda: torch.bfloat16),
    "1-bit": (hooks.one_bit, dict),
    "1-bit-without-feedback": (hooks.one_bit, pytorch_method_runs.Forgetful),
    "top-1-percent": (hooks.top_k, dict),
    "powersgd": (powerSGD_hook, partial(PowerSGDState, None, matrix_approximation_rank=2, start_powerSGD_iter=2)),
    "double-buffering": (half_and_late.late, dict),
    "float16-double-buffering": (partial(half_and_late.late, dtype=torch.float16), dict),
}


def train(rank, args, method, train_set, test_set):
    device = devices.use(args.gpu[int(os.environ["LOCAL_RANK"])])
    sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)

    torch.manual_seed(args.seed)
    model = WideNet(len(train_set.classes)).to(device)
    replica = DistributedDataParallel(model)
    hook, make_state = METHODS[method]
    state = make_state()
    replica.register_comm_hook(state, pytorch_method_runs.after_warm_up(hook, args.warm_up, hooks.plain))
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
            optimizer.step()
        pytorch_method_runs.wait(state)  # otherwise the evaluation would hide an all-reduce
        progress.add(loss.detach(), model, test_set, args.size)
    progress.report(args, len(train_set) * args.epoch)


if __name__ == "__main__":
    pytorch_method_runs.train_each(train, METHODS)
