"""A pipeline in ChainerMN: train_pipeline.py calls these functions. pytorch/pipeline.py has one from scratch.

ChainerMN sends and receives within the computational graph: `send` returns a variable without numbers, from which
backward waits for the gradient; backward through `recv` sends the gradient back. A message waits until it is taken.
"""

import handson.chainer  # before chainer: lets it run on today's NumPy

import chainer.functions as F
import chainermn
from chainermn.functions import recv, send


def make_stage(comm, part):
    """A link that gets its inputs from the rank before, applies `part` to them, and sends what comes out to the next
    rank."""
    # PUT YOUR CODE: `stage`: a chainermn.MultiNodeChainList of `comm`; add_link(part, rank_in=...,
    # rank_out=...) says from which rank the inputs are, and to which rank the outputs go: None at either
    # end of the pipeline
    raise NotImplementedError("PUT YOUR CODE: chain_list")
    return stage


def naive_step(comm, stage, images, labels):
    """Forward and backward of the whole batch. Returns the mean loss on the last rank, 0 on the ranks before."""
    end = stage(images) if comm.rank == 0 else stage()
    if comm.rank == comm.size - 1:
        end = F.softmax_cross_entropy(end, labels)
    end.backward()
    return float(end.array) if end.size else 0.0


def gpipe_step(comm, part, images, labels):
    """GPipe: forwards of all micro-batches, then their backwards. images, labels: an array for each. Returns the mean
    loss as `naive_step` does."""
    last, ends = comm.size - 1, []
    for number in range(len(images)):
        # PUT YOUR CODE: `end`: where the backward of this micro-batch begins. Rank 0 has images[number], the
        # other ranks recv(comm, rank); `part` makes the outputs. On the last rank, `end` is
        # F.softmax_cross_entropy(...) divided by the number of micro-batches; on the others, what
        # send(outputs, comm, rank) returns
        raise NotImplementedError("PUT YOUR CODE: micro_batch")
        ends.append(end)
    for end in ends:
        end.backward()
    return float(sum(end.array.sum() for end in ends))
