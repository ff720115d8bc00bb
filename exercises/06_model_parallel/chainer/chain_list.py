"""A pipeline in ChainerMN: train_pipeline.py calls these functions. pytorch/pipeline.py is a pipeline from scratch.

ChainerMN sends and receives within the computational graph. `send` returns an empty variable: backward from it waits
for the gradient. Backward through `recv` sends the gradient back. `send` waits until the message is received.
"""

import handson.chainer  # before chainer: lets it run on today's NumPy

import chainer.functions as F
import chainermn
from chainermn.functions import recv, send


def make_stage(comm, part):
    """Return a link that receives its inputs from the rank before, applies `part`, and sends the outputs to the next
    rank."""
    # PUT YOUR CODE: Set `stage` to a chainermn.MultiNodeChainList of `comm`. Call its add_link(part,
    # rank_in=..., rank_out=...): rank_in is the rank that sends the inputs, and rank_out is the rank that
    # receives the outputs. At the ends of the pipeline, use None
    raise NotImplementedError("PUT YOUR CODE: chain_list")
    return stage


def naive_step(comm, stage, images, labels):
    """Run forward and backward of the whole batch. Return the mean loss on the last rank, and 0 on the other ranks."""
    end = stage(images) if comm.rank == 0 else stage()
    if comm.rank == comm.size - 1:
        end = F.softmax_cross_entropy(end, labels)
    end.backward()
    return float(end.array) if end.size else 0.0


def gpipe_step(comm, part, images, labels):
    """Run GPipe: the forwards of all micro-batches, then their backwards. Return the mean loss as `naive_step` does.

    images, labels: one array per micro-batch.
    """
    last, ends = comm.size - 1, []
    for number in range(len(images)):
        # PUT YOUR CODE: Set `end` to the variable from which the backward of this micro-batch starts. The
        # inputs are images[number] on rank 0, and recv(comm, rank) on the other ranks; apply `part` to them.
        # On the last rank, set `end` to F.softmax_cross_entropy(...) divided by the number of micro-batches;
        # on the other ranks, to the result of send(outputs, comm, rank)
        raise NotImplementedError("PUT YOUR CODE: micro_batch")
        ends.append(end)
    for end in ends:
        end.backward()
    return float(sum(end.array.sum() for end in ends))
