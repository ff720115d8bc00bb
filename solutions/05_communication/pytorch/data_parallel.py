"""DistributedDataParallel from scratch: train_data_parallel.py calls these functions, in this order.

Backward computes the gradients of the last layer first. They can travel while it goes on to the layers before.
"""

from functools import partial

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


def average_gradients(buckets):
    """From now on, backward starts an all-reduce for each bucket as soon as its last gradient is there. Returns the
    list of those in flight."""
    in_flight = []  # (bucket, its mean gradients in one long tensor, work) of each all-reduce
    missing = [len(bucket) for bucket in buckets]  # how many gradients of each bucket are not yet there

    def ready(number, parameter):
        """Backward has just finished the gradient of this parameter, which is in buckets[number]."""
        ### BEGIN SOLUTION ready:
        ### one gradient less is missing. When none is: put all of the bucket into one tensor,
        ### divide it by the number of ranks, start dist.all_reduce(..., async_op=True), append to
        ### in_flight, and set missing[number] for the next step
        missing[number] -= 1
        if missing[number] == 0:
            mean = torch.cat([parameter.grad.flatten() for parameter in buckets[number]]) / dist.get_world_size()
            in_flight.append((buckets[number], mean, dist.all_reduce(mean, async_op=True)))
            missing[number] = len(buckets[number])
        ### END SOLUTION

    for number, bucket in enumerate(buckets):
        for parameter in bucket:
            ### BEGIN SOLUTION hook:
            ### have backward call `ready(number, parameter)` each time that parameter.grad is
            ### complete: parameter.register_post_accumulate_grad_hook(...)
            parameter.register_post_accumulate_grad_hook(partial(ready, number))
            ### END SOLUTION
    return in_flight


def wait(in_flight):
    """Between backward and the optimizer: wait for the all-reduces, and put the means in the place of the gradients."""
    ### BEGIN SOLUTION wait:
    ### for each (bucket, mean, work): wait, then copy the parts of `mean` to the gradients of the
    ### bucket's parameters; empty `in_flight` at the end
    for bucket, mean, work in in_flight:
        work.wait()
        for parameter, part in zip(bucket, mean.split([parameter.numel() for parameter in bucket])):
            parameter.grad.copy_(part.view_as(parameter))
    in_flight.clear()
    ### END SOLUTION
