"""Half precision and double buffering: options of ChainerMN, which train_hooks.py uses. pytorch/half_and_late.py has
both from scratch."""

import handson.chainer  # before chainer: lets it run on today's NumPy
from handson.chainer.communicators import create_communicator
from handson.chainer.optimizers import create_multi_node_optimizer


def half(dtype):
    """Return a communicator that sends gradients as `dtype`: "float16", "float32", or None for the type of each
    parameter."""
    ### BEGIN SOLUTION half:
    ### set `comm` to the result of create_communicator for the name "naive", which needs no GPU.
    ### Pass `dtype` as its option allreduce_grad_dtype
    comm = create_communicator("naive", allreduce_grad_dtype=dtype)
    ### END SOLUTION
    return comm


def late(optimizer, comm):
    """Return a multi-node optimizer with double buffering: the all-reduce runs during the next step, and each update
    uses the mean of the previous step."""
    ### BEGIN SOLUTION late:
    ### set `optimizer` to the result of create_multi_node_optimizer for this optimizer, with
    ### double buffering
    optimizer = create_multi_node_optimizer(optimizer, comm, double_buffering=True)
    ### END SOLUTION
    return optimizer
