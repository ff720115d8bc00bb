"""Train with a parameter server, the functions of parameter_server.py: mpiexec -n 4 python train_parameter_server.py
--help"""

from collections import Counter

import torch
import torch.distributed as dist
from parameter_server import serve, serve_together, work

from handson.pytorch import devices, messages, pytorch_method_runs
from handson.pytorch.communicator import meet
from handson.pytorch.model import WideNet
from handson.pytorch.workers import TIMEOUT
from handson.training import data, options
from handson.training.banner import announce

METHODS = {  # name -> (how the server takes gradients, seconds that the last worker sleeps before each step)
    "synchronous": (serve_together, 0.0),
    "asynchronous": (serve, 0.0),
    "synchronous-slow-worker": (serve_together, 0.2),
    "asynchronous-slow-worker": (serve, 0.2),
}


def train(comm, args, method, train_set, test_set):
    device = devices.use(args.gpu[comm.intra_rank])
    workers, (server, pause) = comm.size - 1, METHODS[method]
    torch.manual_seed(args.seed)  # all ranks begin with the same parameters
    model = WideNet(len(train_set.classes)).to(device)
    pytorch_method_runs.guard(comm, model, args.epoch, least=2)
    if comm.rank > 0:
        slow = pause if comm.rank == workers else 0.0
        return work(model, pytorch_method_runs.endless(train_set, args, comm.rank - 1, workers, device, slow))

    parameters = messages.vector(model, 1).cpu()
    images = min(args.batchsize, len(train_set) // workers)  # of a gradient
    gradients = len(train_set) // images  # in an epoch
    steps = gradients // workers if server is serve_together else gradients
    progress = pytorch_method_runs.Progress(comm, method, together=False)

    def evaluate(version):
        if version % steps == 0:
            messages.load(parameters, model)
            progress.add(lambda: pytorch_method_runs.settle(model, train_set, args, device), model, test_set, args.size)

    staleness = server(parameters, args.lr, steps * args.epoch, evaluate)
    for row, of_epoch in zip(progress.log, range(0, len(staleness), steps)):
        row |= {
            f"staleness {number}": times for number, times in Counter(staleness[of_epoch : of_epoch + steps]).items()
        }
    progress.report(args, images * gradients * args.epoch)


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
