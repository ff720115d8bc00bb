"""DistributedDataParallel from scratch: train_data_parallel.py calls these functions, in this order.

Backward computes the gradients of the last layer first. They can travel while it goes on to the layers before.
"""

from functools import partial

import torch
import torch.distributed as dist


def broadcast(model):
    """Give all ranks the parameters of rank 0: each began with random ones of its own."""
    # PUT YOUR CODE: dist.broadcast each parameter (.detach() of it, which autograd does not follow) from
    # rank 0
    raise NotImplementedError("PUT YOUR CODE: broadcast")


def fill_buckets(parameters, most):
    """Lists of parameters whose gradients travel together, in the order in which backward finishes them: the last
    parameter is the first.

    A bucket has `most` bytes at most, unless a single parameter has more. It is closed when the next parameter does not
    fit.
    """
    # PUT YOUR CODE: `buckets`: a list of lists. Go through the list `parameters` backwards;
    # parameter.nbytes is its size
    raise NotImplementedError("PUT YOUR CODE: buckets")
    return buckets


def average_gradients(buckets):
    """From now on, backward starts an all-reduce for each bucket as soon as its last gradient is there. Returns the
    list of those in flight."""
    in_flight = []  # (bucket, its mean gradients in one long tensor, work) of each all-reduce
    missing = [len(bucket) for bucket in buckets]  # how many gradients of each bucket are not yet there

    def ready(number, parameter):
        """Backward has just finished the gradient of this parameter, which is in buckets[number]."""
        # PUT YOUR CODE: one gradient less is missing. When none is: put all of the bucket into one tensor,
        # divide it by the number of ranks, start dist.all_reduce(..., async_op=True), append to in_flight,
        # and set missing[number] for the next step
        raise NotImplementedError("PUT YOUR CODE: ready")

    for number, bucket in enumerate(buckets):
        for parameter in bucket:
            # PUT YOUR CODE: have backward call `ready(number, parameter)` each time that parameter.grad is
            # complete: parameter.register_post_accumulate_grad_hook(...)
            raise NotImplementedError("PUT YOUR CODE: hook")
    return in_flight


def wait(in_flight):
    """Between backward and the optimizer: wait for the all-reduces, and put the means in the place of the gradients."""
    # PUT YOUR CODE: for each (bucket, mean, work): wait, then copy the parts of `mean` to the gradients
    # of the bucket's parameters; empty `in_flight` at the end
    raise NotImplementedError("PUT YOUR CODE: wait")
