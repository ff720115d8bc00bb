"""Attention over a sequence that is cut among ranks: mpiexec -n 4 python attention.py --help

All tensors are (heads, tokens, width of a head). `attend(query, key, value, query_places, key_places, causal)` gives a
Partial: what the queries take of these keys, and the logarithm of the sum of exp(score), for each query.
"""

import torch
import torch.distributed as dist

from handson.pytorch.attentions import Partial, attend, measure


def combine(one, other):
    """The Partial of the keys of both Partials together: as if one softmax had seen them all."""
    ### BEGIN SOLUTION combine:
    ### `total` (heads, queries): the logarithm of the sum of exp over all keys, by torch.logaddexp;
    ### `taken` (heads, queries, width): one.taken and other.taken, each with the share of that sum
    ### that its keys have. exp(total) itself would overflow
    total = torch.logaddexp(one.total, other.total)
    of_one, of_other = (one.total - total).exp(), (other.total - total).exp()
    taken = of_one[..., None] * one.taken + of_other[..., None] * other.taken
    ### END SOLUTION
    return Partial(taken, total)


def places_of(tokens, rank, size, zigzag):
    """The places of this rank's tokens in the whole sequence, in growing order: a stretch, or two with `zigzag`."""
    chunks = torch.arange(tokens).chunk(2 * size if zigzag else size)
    if not zigzag:
        return chunks[rank]
    ### BEGIN SOLUTION zigzag:
    ### `mine`: a list of the two of the 2 * size `chunks` that this rank gets. Rank 0 gets the
    ### first one, which sees least, and the last one, which sees most; rank 1 the next ones
    ### inwards
    mine = [chunks[rank], chunks[2 * size - 1 - rank]]
    ### END SOLUTION
    return torch.cat(mine)


def ring_attention(query, key, value, places, causal):
    """What this rank's queries take of all ranks' keys, which travel around a ring. places: of each rank's tokens."""
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    block, result = torch.stack([key, value]), None
    for step in range(size):
        source = (rank - step) % size  # the rank that `block` comes from
        arriving = torch.empty_like(block)
        ### BEGIN SOLUTION ring_step:
        ### begin to send `block` to the right and to receive `arriving` from the left, by
        ### dist.batch_isend_irecv with two dist.P2POp, but not in the last step; meanwhile attend
        ### to `block`; put that together with `result`, which is None in the first step; wait for
        ### both messages, then make `arriving` the `block` of the next step
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
    """All tokens of this rank's heads (heads / size, tokens, width), from all heads of its tokens."""
    size = dist.get_world_size()
    ### BEGIN SOLUTION to_heads:
    ### `whole`: by one dist.all_to_all_single(received, part), which sends rank r the r-th part of
    ### dimension 0; in `received`, what comes from rank r lies at the r-th part of dimension 0.
    ### to_tokens below goes the other way
    received = torch.empty_like(part)
    dist.all_to_all_single(received, part.contiguous())
    whole = received.unflatten(0, (size, -1)).transpose(0, 1).flatten(1, 2)
    ### END SOLUTION
    return whole


def to_tokens(whole):
    """The way back: all heads of this rank's tokens."""
    size = dist.get_world_size()
    parts = whole.unflatten(1, (size, -1)).transpose(0, 1).flatten(0, 1)
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts)
    return received


def head_attention(query, key, value, places, causal):
    """As `ring_attention`; each rank has some of the heads, and all tokens (Jacobs et al., "DeepSpeed Ulysses", 2023).
    The ranks have their tokens in the order of the sequence."""
    everywhere = torch.cat(places)
    query, key, value = to_heads(query), to_heads(key), to_heads(value)
    return to_tokens(attend(query, key, value, everywhere, everywhere, causal).taken)


if __name__ == "__main__":
    measure(
        places_of, {"ring": (ring_attention, False), "zigzag": (ring_attention, True), "heads": (head_attention, False)}
    )
