"""DistributedDataParallel from scratch. train_data_parallel.py calls these functions and methods in this order.

Backward computes the gradients of the last layer first. They can be sent while backward continues with the earlier
layers.
"""

import torch
import torch.distributed as dist


def broadcast(model):
    """Copy the parameters of rank 0 to all ranks: each rank has started with its own random parameters."""
    # PUT YOUR CODE: broadcast each parameter from rank 0 with dist.broadcast. Pass parameter.detach(),
    # which autograd does not track
    raise NotImplementedError("PUT YOUR CODE: broadcast")


def fill_buckets(parameters, most):
    """Return lists of parameters whose gradients are sent together, in the order in which backward finishes the
    gradients: the last parameter comes first.

    A bucket holds at most `most` bytes, unless a single parameter has more. It is closed when the next parameter does
    not fit.
    """
    # PUT YOUR CODE: set `buckets` to a list of lists of parameters. Go through the list `parameters`
    # backwards. The size of a parameter in bytes is parameter.nbytes
    raise NotImplementedError("PUT YOUR CODE: buckets")
    return buckets


class Bucket:
    """Parameters whose gradients are averaged together, in one all-reduce."""

    def __init__(self, parameters):
        self.parameters = parameters
        self.missing = len(parameters)  # number of gradients that are not complete yet
        self.mean = self.work = None  # the averaged gradients in one long tensor, and their all-reduce

    def register(self):
        """Make backward call `self.ready(parameter)` whenever a gradient of this bucket is complete."""
        # PUT YOUR CODE: call parameter.register_post_accumulate_grad_hook(function) for each parameter of the
        # bucket. Backward calls the function with the parameter as its argument
        raise NotImplementedError("PUT YOUR CODE: hook")

    def ready(self, parameter):
        """Count the gradient of `parameter`, which backward has just finished. The last gradient starts the
        all-reduce."""
        # PUT YOUR CODE: decrease self.missing by 1. If it is now 0: set `self.mean` to the gradients of the
        # bucket in one tensor, divided by the number of ranks. Set `self.work` to the result of
        # dist.all_reduce(..., async_op=True). Reset self.missing for the next step
        raise NotImplementedError("PUT YOUR CODE: ready")

    def wait(self):
        """Wait for the all-reduce, and replace the gradients with the averaged gradients. Called between backward and
        the optimizer step."""
        # PUT YOUR CODE: wait for self.work. Then copy the parts of self.mean into the gradients of the
        # parameters
        raise NotImplementedError("PUT YOUR CODE: wait")
