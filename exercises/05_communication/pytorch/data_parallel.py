"""DistributedDataParallel from scratch: train_data_parallel.py uses what is here, in this order.

Backward computes the gradients of the last layer first. They can travel while it goes on to the layers before.
"""

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


class Bucket:
    """Parameters whose gradients travel together, in one all-reduce."""

    def __init__(self, parameters):
        self.parameters = parameters
        self.missing = len(parameters)  # how many of their gradients are not yet there
        self.mean = self.work = None  # the mean gradients in one long tensor, and their all-reduce

    def register(self):
        """From now on, backward calls `self.ready(parameter)` each time that a gradient is complete."""
        # PUT YOUR CODE: for each parameter of the bucket: parameter.register_post_accumulate_grad_hook(...);
        # the function that it gets is called with the parameter
        raise NotImplementedError("PUT YOUR CODE: hook")

    def ready(self, parameter):
        """Backward has just finished the gradient of this parameter. The last one starts the all-reduce."""
        # PUT YOUR CODE: one gradient less is missing. When none is: `self.mean`, the gradients of the bucket
        # in one tensor, divided by the number of ranks; `self.work`, its dist.all_reduce(..., async_op=True);
        # and set self.missing for the next step
        raise NotImplementedError("PUT YOUR CODE: ready")

    def wait(self):
        """Between backward and the optimizer: wait for the all-reduce, and put the means in the place of the
        gradients."""
        # PUT YOUR CODE: wait for self.work, then copy the parts of self.mean to the gradients of the
        # parameters
        raise NotImplementedError("PUT YOUR CODE: wait")
