"""Data parallelism in one process, with a thread for each GPU: torch.nn.DataParallel, or on virtual GPUs what that is
made of."""

import copy
import os
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from handson.training import virtual_gpus


def data_parallel(module, gpus):
    """`module` with a replica on each of the GPUs with these ids: (N, ...) -> what the module makes of it, computed in
    as many threads.

    Where there are no GPUs, torch.nn.DataParallel silently runs the module alone; here, its replicas are on virtual
    GPUs.
    """
    return nn.DataParallel(module, gpus) if torch.cuda.is_available() else Threads(module, len(gpus))


class Threads(nn.Module):
    """What torch.nn.DataParallel does, without GPUs: replicate, scatter, apply in parallel, gather. Each thread has a
    core of this process.

    DataParallel copies the parameters to the GPUs in each step. Replicas on the cores of one machine share their
    memory, so this needs no copies, and they are made once. No gradient goes back to the input.
    """

    def __init__(self, module, workers):
        super().__init__()
        self.module, self._replicas = module, replicate(module, workers)
        places = iter(virtual_gpus.cores() * workers)
        self._threads = ThreadPoolExecutor(workers, "replica", lambda: os.sched_setaffinity(0, [next(places)]))

    def forward(self, inputs):
        for replica in self._replicas:
            replica.train(self.module.training)
        return _OneOperation.apply(self, inputs, *self.module.parameters())

    def parallel_apply(self, function, *arguments):
        """[function(replica, one of each of the lists `arguments`)], for as many replicas as the lists are long, each
        in a thread."""
        return list(self._threads.map(function, self._replicas, *arguments))


def replicate(module, number):
    """Copies of a module. They share the memory of its parameters, and have gradients of their own. The first one also
    shares its buffers, as in DataParallel: what the others note there, such as running statistics, is lost."""
    replicas = []
    for _ in range(number):
        alike = {id(parameter): parameter.detach().requires_grad_() for parameter in module.parameters()}
        buffers = {} if replicas else {id(buffer): buffer for buffer in module.buffers()}
        replicas.append(copy.deepcopy(module, alike | buffers))
    return replicas


class _OneOperation(torch.autograd.Function):
    """Forward and backward of all replicas, as one operation on the module's parameters. The threads of autograd, one
    for each GPU, go backward by themselves; a machine without GPUs has one, so the replicas' threads do it."""

    @staticmethod
    def forward(ctx, parallel, inputs, *parameters):
        ctx.parallel = parallel
        with torch.enable_grad():
            # scatter
            ctx.outputs = parallel.parallel_apply(
                lambda replica, part: replica(part), inputs.chunk(len(parallel._replicas))
            )
        return torch.cat([output.detach() for output in ctx.outputs])  # gather

    @staticmethod
    def backward(ctx, gradient):
        parts = gradient.split([len(output) for output in ctx.outputs])

        def gradients(replica, output, part):
            return torch.autograd.grad(output, list(replica.parameters()), part)

        found = ctx.parallel.parallel_apply(gradients, ctx.outputs, parts)
        return None, None, *(sum(of_replicas) for of_replicas in zip(*found))
