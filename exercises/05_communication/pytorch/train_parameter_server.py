"""Train with a parameter server (parameter_server.py): mpiexec -n 4 python train_parameter_server.py
--help"""

import os
from collections import Counter

import torch
import torch.distributed as dist
from parameter_server import serve, serve_together, work
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from handson.pytorch import devices, pytorch_method_runs
from handson.pytorch.model import WideNet

METHODS = {  # name -> (the server's function, seconds that the last worker sleeps before each step)
    "synchronous": (serve_together, 0.0),
    "asynchronous": (serve, 0.0),
    "synchronous-slow-worker": (serve_together, 0.2),
    "asynchronous-slow-worker": (serve, 0.2),
}


def train(rank, args, method, train_set, test_set):
    device = devices.use(args.gpu[int(os.environ["LOCAL_RANK"])])
    workers, (server, pause) = dist.get_world_size() - 1, METHODS[method]
    torch.manual_seed(args.seed)  # all ranks start with the same parameters
    model = WideNet(len(train_set.classes)).to(device)
    pytorch_method_runs.guard(model, args.epoch, least=2)
    if rank > 0:
        slow = pause if rank == workers else 0.0
        return work(model, pytorch_method_runs.endless(train_set, args, rank - 1, workers, device, slow))

    parameters = parameters_to_vector(model.parameters()).detach().cpu()
    images = min(args.batchsize, len(train_set) // workers)  # per gradient
    gradients = len(train_set) // images  # per epoch
    steps = gradients // workers if server is serve_together else gradients
    progress = pytorch_method_runs.Progress(rank, method, together=False)

    def evaluate(version):
        if version % steps == 0:
            vector_to_parameters(parameters.to(device), model.parameters())
            progress.add(lambda: pytorch_method_runs.settle(model, train_set, args, device), model, test_set, args.size)

    staleness = server(parameters, args.lr, steps * args.epoch, evaluate)
    for row, of_epoch in zip(progress.log, range(0, len(staleness), steps)):
        row |= {
            f"staleness {number}": times for number, times in Counter(staleness[of_epoch : of_epoch + steps]).items()
        }
    progress.report(args, images * gradients * args.epoch)


if __name__ == "__main__":
    pytorch_method_runs.train_each(train, METHODS)
