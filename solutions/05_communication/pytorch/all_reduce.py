"""All-reduce from scratch, with point-to-point messages only: mpiexec -n 4 python all_reduce.py --help

`send` is `dist.isend`, and `expect` is `dist.irecv`. Both return a handle at once, and the handle's `wait()` blocks
until the message is complete. After `expect`, `wait()` returns the tensor. `receive` is `expect(...).wait()`. If two
ranks send to each other, call `expect` before `send`: gloo then uses both directions at the same time.
"""

import torch.distributed as dist

from handson.pytorch import all_reduces
from handson.pytorch.messages import expect, receive, send


def naive(tensor):
    """Replace `tensor` (1 dimension) with the sum of all ranks' tensors, on every rank. Rank 0 adds them up and sends
    the sum back."""
    rank, size = dist.get_rank(), dist.get_world_size()
    ### BEGIN SOLUTION naive:
    ### receive all other ranks' tensors on rank 0, and add them to its own. Then send the sum from
    ### rank 0 to every other rank. Use send(tensor, to) and receive(like, source)
    if rank == 0:
        for other in range(1, size):
            tensor += receive(tensor, other)
        for other in range(1, size):
            send(tensor, other).wait()
    else:
        send(tensor, 0).wait()
        tensor.copy_(receive(tensor, 0))
    ### END SOLUTION


def ring(tensor):
    """Like `naive`, but in a ring: each rank sends only to its right neighbour, 2 (N - 1) messages with 1/N of the
    numbers each."""
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = tensor.tensor_split(size)  # views: a change of a chunk changes `tensor`
    for step in range(size - 1):
        ### BEGIN SOLUTION reduce_scatter:
        ### expect chunk (rank - step - 1) from the left. Send chunk (rank - step) to the right.
        ### Wait for both, and add the chunk that arrives to your own chunk with the same number.
        ### Take all numbers modulo `size`
        mine, theirs = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        arriving, sending = expect(theirs, left), send(mine, right)
        theirs += arriving.wait()
        sending.wait()
        ### END SOLUTION
    for step in range(size - 1):
        ### BEGIN SOLUTION all_gather:
        ### pass the sums on around the ring: rank r now has the sum of chunk (r + 1). Expect and
        ### send as above. Replace your own chunk with the chunk that arrives
        mine, theirs = chunks[(rank + 1 - step) % size], chunks[(rank - step) % size]
        arriving, sending = expect(theirs, left), send(mine, right)
        theirs.copy_(arriving.wait())
        sending.wait()
        ### END SOLUTION


def doubling(tensor):
    """Like `naive`, but in log2 N rounds: in round k, every rank exchanges all its numbers with the rank at distance
    2^k.

    Ranks beyond the largest power of two send their numbers to a partner before the rounds, and receive the sum after
    the rounds.
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
        ### BEGIN SOLUTION doubling:
        ### exchange `tensor` with the partner, whose rank differs in one bit: rank ^ distance. Add
        ### the partner's tensor to your own, and double `distance`
        partner = rank ^ distance
        arriving, sending = expect(tensor, partner), send(tensor, partner)
        theirs = arriving.wait()
        sending.wait()  # before `tensor` changes: the message may still read it
        tensor += theirs
        distance *= 2
        ### END SOLUTION
    if rank + power < size:
        send(tensor, rank + power).wait()


if __name__ == "__main__":
    all_reduces.measure({"naive": naive, "ring": ring, "doubling": doubling, "gloo": dist.all_reduce})
