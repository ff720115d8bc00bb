"""All-reduce from scratch, with point-to-point messages only: mpiexec -n 4 python all_reduce.py --help

`send` is `dist.isend` and `expect` is `dist.irecv`: both return at once, and `wait()` waits for the message; that of
`expect` returns it. `receive` is `expect(...).wait()`. Two ranks that send to each other expect first: gloo then sends
both ways at once.
"""

import torch.distributed as dist

from handson.pytorch import all_reduces
from handson.pytorch.messages import expect, receive, send


def naive(tensor):
    """Replace `tensor` (1 dimension) by the sum of all ranks' tensors, on every rank: rank 0 adds them up and sends the
    sum back."""
    rank, size = dist.get_rank(), dist.get_world_size()
    # PUT YOUR CODE: with send(tensor, to) and receive(like, source): rank 0 receives all tensors, adds
    # them to its own, and sends the sum to all
    raise NotImplementedError("PUT YOUR CODE: naive")


def ring(tensor):
    """As `naive`; the ranks form a ring, and each sends only to the next one: 2 (N - 1) messages of 1/N of the
    numbers."""
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = tensor.tensor_split(size)  # views: what is added to a chunk is added to `tensor`
    for step in range(size - 1):
        # PUT YOUR CODE: expect the chunk before chunk (rank - step) from the left, and send chunk (rank -
        # step) to the right meanwhile; add what arrives to your own. All modulo size
        raise NotImplementedError("PUT YOUR CODE: reduce_scatter")
    for step in range(size - 1):
        # PUT YOUR CODE: rank r now has the sum of chunk (r + 1). Pass the sums on around the ring, as above;
        # what arrives replaces your own
        raise NotImplementedError("PUT YOUR CODE: all_gather")


def doubling(tensor):
    """As `naive`, in log2 N rounds: in round k every rank exchanges all its numbers with the rank at distance 2^k.

    Ranks beyond the largest power of two give their numbers to a partner before the rounds, and get the sum afterwards.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    power = 1 << (size.bit_length() - 1)  # the largest power of two that is not above `size`
    if rank >= power:
        send(tensor, rank - power).wait()
        tensor.copy_(receive(tensor, rank - power))
        return
    if rank + power < size:
        tensor += receive(tensor, rank + power)
    distance = 1
    while distance < power:
        # PUT YOUR CODE: exchange `tensor` with the partner whose rank differs in one bit (rank ^ distance),
        # add what it sends, and double `distance`
        raise NotImplementedError("PUT YOUR CODE: doubling")
    if rank + power < size:
        send(tensor, rank + power).wait()


if __name__ == "__main__":
    all_reduces.measure({"naive": naive, "ring": ring, "doubling": doubling, "gloo": dist.all_reduce})
