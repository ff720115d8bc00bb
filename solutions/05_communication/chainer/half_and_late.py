"""Half the bytes, and sent during the next step: options of ChainerMN, which train_hooks.py uses.
pytorch/half_and_late.py has them from scratch."""

import handson.chainer  # before chainer: lets it run on today's NumPy
from handson.chainer.communicators import create_communicator
from handson.chainer.optimizers import create_multi_node_optimizer


def half(dtype):
    """A communicator that sends gradients as `dtype`: "float16", "float32", or None, each in the type of its
    parameter."""
    ### BEGIN SOLUTION half:
    ### `comm`: what create_communicator makes for the name "naive", which needs no GPU; its option
    ### allreduce_grad_dtype is the type
    comm = create_communicator("naive", allreduce_grad_dtype=dtype)
    ### END SOLUTION
    return comm


def late(optimizer, comm):
    """A multi-node optimizer with double buffering: the all-reduce goes on during the next step, and each step uses the
    mean of the step before."""
    ### BEGIN SOLUTION late:
    ### `optimizer`: what create_multi_node_optimizer makes of it, with double buffering
    optimizer = create_multi_node_optimizer(optimizer, comm, double_buffering=True)
    ### END SOLUTION
    return optimizer
