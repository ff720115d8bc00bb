"""Train with the communication hooks of hooks.py and half_and_late.py: mpiexec -n 2 python train_hooks.py --help"""

from functools import partial

import half_and_late
import hooks
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from handson.pytorch import devices, pytorch_method_runs
from handson.pytorch.communicator import meet
from handson.pytorch.model import WideNet
from handson.pytorch.workers import TIMEOUT
from handson.training import data, options
from handson.training.banner import announce

METHODS = {  # name -> the hook (powersgd: torch's own), and what makes its state
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


def train(comm, args, method, train_set, test_set):
    device = devices.use(args.gpu[comm.intra_rank])
    sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)

    torch.manual_seed(args.seed)
    model = WideNet(len(train_set.classes)).to(device)
    replica = DistributedDataParallel(model, broadcast_buffers=False)  # no statistics from rank 0
    hook, make_state = METHODS[method]
    state = make_state()
    replica.register_comm_hook(state, pytorch_method_runs.after_warm_up(hook, args.warm_up, hooks.plain))
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
            optimizer.step()
        pytorch_method_runs.wait(state)  # or an all-reduce would hide behind the evaluation
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
