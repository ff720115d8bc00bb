"""Data parallelism in one process, with a thread for each GPU: torch.nn.DataParallel, or its parts on virtual GPUs."""

import copy
import os
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from handson.training import virtual_gpus


def data_parallel(module, gpus):
    """Return `module` with a replica on each of the GPUs with these ids, as a function from (N, ...) to the module's
    output, computed in one thread per GPU.

    Without GPUs, torch.nn.DataParallel silently runs the module without replicas; here, its replicas are on virtual
    GPUs.
    """
    return nn.DataParallel(module, gpus) if torch.cuda.is_available() else Threads(module, len(gpus))


class Threads(nn.Module):
    """The steps of torch.nn.DataParallel, without GPUs: replicate, scatter, apply in parallel, gather. Each thread has
    a core of this process.

    DataParallel copies the parameters to the GPUs in each step. Replicas on the cores of one machine share their
    memory, so they need no copies, and are created once. No gradient flows to the input.
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
        """Return [function(replica, one of each of the lists `arguments`)], for as many replicas as the lists are long,
        each computed in a thread."""
        return list(self._threads.map(function, self._replicas, *arguments))


def replicate(module, number):
    """Return copies of a module. They share the memory of its parameters, but have their own gradients. The first one
    also shares its buffers, as in DataParallel: changes of the other buffers, such as running statistics, are lost."""
    replicas = []
    for _ in range(number):
        alike = {id(parameter): parameter.detach().requires_grad_() for parameter in module.parameters()}
        buffers = {} if replicas else {id(buffer): buffer for buffer in module.buffers()}
        replicas.append(copy.deepcopy(module, alike | buffers))
    return replicas


class _OneOperation(torch.autograd.Function):
    """Forward and backward of all replicas, as one operation on the module's parameters. autograd has one thread per
    GPU for backward; a machine without GPUs has a single one, so the replicas' threads run backward."""

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
