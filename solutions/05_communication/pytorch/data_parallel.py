"""DistributedDataParallel from scratch: train_data_parallel.py uses what is here, in this order.

Backward computes the gradients of the last layer first. They can travel while it goes on to the layers before.
"""

import torch
import torch.distributed as dist


def broadcast(model):
    """Give all ranks the parameters of rank 0: each began with random ones of its own."""
    ### BEGIN SOLUTION broadcast:
    ### dist.broadcast each parameter (.detach() of it, which autograd does not follow) from rank 0
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), 0)
    ### END SOLUTION


def fill_buckets(parameters, most):
    """Lists of parameters whose gradients travel together, in the order in which backward finishes them: the last
    parameter is the first.

    A bucket has `most` bytes at most, unless a single parameter has more. It is closed when the next parameter does not
    fit.
    """
    ### BEGIN SOLUTION buckets:
    ### `buckets`: a list of lists. Go through the list `parameters` backwards; parameter.nbytes is
    ### its size
    buckets, room = [], 0
    for parameter in reversed(parameters):
        if not buckets or parameter.nbytes > room:
            buckets.append([])
            room = most
        buckets[-1].append(parameter)
        room -= parameter.nbytes
    ### END SOLUTION
    return buckets


class Bucket:
    """Parameters whose gradients travel together, in one all-reduce."""

    def __init__(self, parameters):
        self.parameters = parameters
        self.missing = len(parameters)  # how many of their gradients are not yet there
        self.mean = self.work = None  # the mean gradients in one long tensor, and their all-reduce

    def register(self):
        """From now on, backward calls `self.ready(parameter)` each time that a gradient is complete."""
        ### BEGIN SOLUTION hook:
        ### for each parameter of the bucket: parameter.register_post_accumulate_grad_hook(...); the
        ### function that it gets is called with the parameter
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self.ready)
        ### END SOLUTION

    def ready(self, parameter):
        """Backward has just finished the gradient of this parameter. The last one starts the all-reduce."""
        ### BEGIN SOLUTION ready:
        ### one gradient less is missing. When none is: `self.mean`, the gradients of the bucket in one
        ### tensor, divided by the number of ranks; `self.work`, its dist.all_reduce(...,
        ### async_op=True); and set self.missing for the next step
        self.missing -= 1
        if self.missing == 0:
            gradients = torch.cat([parameter.grad.flatten() for parameter in self.parameters])
            self.mean = gradients / dist.get_world_size()
            self.work = dist.all_reduce(self.mean, async_op=True)
            self.missing = len(self.parameters)
        ### END SOLUTION

    def wait(self):
        """Between backward and the optimizer: wait for the all-reduce, and put the means in the place of the
        gradients."""
        ### BEGIN SOLUTION wait:
        ### wait for self.work, then copy the parts of self.mean to the gradients of the parameters
        self.work.wait()
        parts = self.mean.split([parameter.numel() for parameter in self.parameters])
        for parameter, part in zip(self.parameters, parts):
            parameter.grad.copy_(part.view_as(parameter))
        ### END SOLUTION
