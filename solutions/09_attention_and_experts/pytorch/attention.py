"""Attention over a sequence that is split among ranks: mpiexec -n 4 python attention.py --help

All tensors have the shape (heads, tokens, width of a head). `attend(query, key, value, query_places, key_places,
causal)` returns a Partial. For each query, it contains the average of the values with softmax weights (`taken`), and
the logarithm of the sum of exp(score) (`total`).
"""

import torch
import torch.distributed as dist

from handson.pytorch.attentions import Partial, attend, measure


def combine(one, other):
    """Return the Partial of the keys of both Partials, as if one softmax had seen all of them."""
    ### BEGIN SOLUTION combine:
    ### set `total` (heads, queries) to the logarithm of the sum of exp over all keys, with
    ### torch.logaddexp. Set `taken` to one.taken times one's share, plus other.taken times other's
    ### share. The share of `one` is exp(one.total - total): never compute exp(total) itself,
    ### because it would overflow
    total = torch.logaddexp(one.total, other.total)
    of_one, of_other = (one.total - total).exp(), (other.total - total).exp()
    taken = of_one[..., None] * one.taken + of_other[..., None] * other.taken
    ### END SOLUTION
    return Partial(taken, total)


def places_of(tokens, rank, size, zigzag):
    """Return the positions of this rank's tokens in the whole sequence, in ascending order: one contiguous stretch, or
    two chunks with `zigzag`."""
    chunks = torch.arange(tokens).chunk(2 * size if zigzag else size)
    if not zigzag:
        return chunks[rank]
    ### BEGIN SOLUTION zigzag:
    ### set `mine` to a list of two tensors: the two of the 2 * size `chunks` that belong to this
    ### rank. Rank 0 gets the first chunk, which sees the fewest keys, and the last one, which sees
    ### the most. Rank 1 gets the next chunk from both ends, and so on
    mine = [chunks[rank], chunks[2 * size - 1 - rank]]
    ### END SOLUTION
    return torch.cat(mine)


def ring_attention(query, key, value, places, causal):
    """Return the attention of this rank's queries to the keys of all ranks. The keys travel around a ring. places: the
    positions of each rank's tokens."""
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    block, result = torch.stack([key, value]), None
    for step in range(size):
        source = (rank - step) % size  # the rank to which `block` belongs
        arriving = torch.empty_like(block)
        ### BEGIN SOLUTION ring_step:
        ### in all steps but the last, start to send `block` to the right and to receive `arriving`
        ### from the left (dist.batch_isend_irecv with two dist.P2POp). Meanwhile, attend to
        ### `block`. Combine the Partial with `result`, which is None in the first step. Wait for
        ### both messages, then set `block` to `arriving`
        works = []
        if step < size - 1:
            messages = dist.P2POp(dist.irecv, arriving, left), dist.P2POp(dist.isend, block, right)
            works = dist.batch_isend_irecv(list(messages))
        part = attend(query, *block, places[rank], places[source], causal)
        result = part if result is None else combine(result, part)
        for work in works:
            work.wait()
        block = arriving
        ### END SOLUTION
    return result.taken


def to_heads(part):
    """Convert all heads of this rank's tokens to all tokens of this rank's heads (heads / size, tokens, width)."""
    size = dist.get_world_size()
    ### BEGIN SOLUTION to_heads:
    ### set `whole` with one dist.all_to_all_single(received, part). The call splits `part` along
    ### dimension 0, and sends part r to rank r. In `received`, part r comes from rank r.
    ### `to_tokens` below is the way back
    received = torch.empty_like(part)
    dist.all_to_all_single(received, part.contiguous())
    whole = received.unflatten(0, (size, -1)).transpose(0, 1).flatten(1, 2)
    ### END SOLUTION
    return whole


def to_tokens(whole):
    """Convert back to all heads of this rank's tokens."""
    size = dist.get_world_size()
    parts = whole.unflatten(1, (size, -1)).transpose(0, 1).flatten(0, 1)
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts)
    return received


def head_attention(query, key, value, places, causal):
    """Return the same as `ring_attention`, but each rank computes some of the heads for all tokens (Jacobs et al.,
    "DeepSpeed Ulysses", 2023). The ranks hold their tokens in the order of the sequence."""
    everywhere = torch.cat(places)
    query, key, value = to_heads(query), to_heads(key), to_heads(value)
    return to_tokens(attend(query, key, value, everywhere, everywhere, causal).taken)


if __name__ == "__main__":
    measure(
        places_of, {"ring": (ring_attention, False), "zigzag": (ring_attention, True), "heads": (head_attention, False)}
    )
