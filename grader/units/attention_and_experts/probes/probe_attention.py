"""The probes of attention.py: each gap runs on its own; the ring and the all-to-all run on real ranks."""

import math

import torch

from grader.probes.count_collectives import Collectives
from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import join
from grader.sandbox.rank import StudentMistake
from handson.pytorch.attentions import Partial, attend
from handson.words import a_kind

WIDTH = 3
OF_A_RANK = 2, 2, WIDTH  # heads, tokens and width in the ring


def a_tensor(name, found, shape):
    """Return `found` if it is a tensor of this shape. Raises StudentMistake."""
    if not isinstance(found, torch.Tensor):
        raise StudentMistake(f"`{name}` is {a_kind(found)}, but it must be a tensor of shape {tuple(shape)}")
    if tuple(found.shape) != tuple(shape):
        raise StudentMistake(
            f"`{name}` has the shape {tuple(found.shape)}, but it must be a tensor of shape {tuple(shape)}"
        )
    return found.detach()


def partials(case):
    """Return two Partials in double precision, like those of softmaxes over some keys. With case["blind"], the second
    one has seen no key for its first query."""
    chance = torch.Generator().manual_seed(case["seed"])
    shape = case["heads"], case["queries"]

    def one():
        taken, total = torch.randn(*shape, WIDTH, generator=chance), torch.randn(*shape, generator=chance)
        return Partial(taken.double(), total.double() + case["high"])

    first, second = one(), one()
    if case.get("blind"):
        second.taken[:, 0], second.total[:, 0] = 0.0, -math.inf
    return first, second


def combine(rank, ranks, source, case):
    """Return `taken` and `total` of two combined Partials."""
    one, other = partials(case)
    names = GapCode(source).run(one=one, other=other)
    return {
        "total": a_tensor("total", names.total, one.total.shape).numpy().copy(),
        "taken": a_tensor("taken", names.taken, one.taken.shape).numpy().copy(),
    }


def zigzag(rank, ranks, source, case):
    """Return the numbers of the chunks of each rank, for each number of ranks."""
    student, found = GapCode(source), []
    for size in case["sizes"]:
        of_ranks = []
        for one in range(size):
            chunks = torch.arange(6 * size).chunk(2 * size)
            mine = student.run(tokens=6 * size, rank=one, size=size, zigzag=True, chunks=chunks).mine
            if not isinstance(mine, (list, tuple)) or not all(isinstance(chunk, torch.Tensor) for chunk in mine):
                raise StudentMistake("`mine` must be a list of two of the tensors in `chunks`, not of their numbers")
            if not all(any(torch.equal(chunk, own) for own in chunks) for chunk in mine):
                raise StudentMistake("`mine` contains a tensor that is not in `chunks`: choose two of `chunks`")
            of_ranks.append([next(place for place, own in enumerate(chunks) if torch.equal(own, one)) for one in mine])
        found.append(of_ranks)
    return {"chunks": found}


def of_the_ring(case):
    """Return (query, key, value) of all ranks, each (heads, tokens, width), in double precision."""
    heads, tokens, width = OF_A_RANK
    chance = torch.Generator().manual_seed(case["seed"])
    return torch.randn(3, heads, tokens * case["ranks"], width, generator=chance, dtype=torch.float64)


def places(case):
    return list(torch.arange(OF_A_RANK[1] * case["ranks"]).chunk(case["ranks"]))


def ring(rank, ranks, source, case):
    """Return the result of the ring, the targets of the messages, and whether a message was in flight when `attend` was
    called."""
    join(rank, ranks)
    query, key, value = of_the_ring(case)[:, :, places(case)[rank]]
    collectives, travelling = Collectives(), []

    def noted(*arguments):
        travelling[-1] |= bool(collectives._in_flight)
        return attend(*arguments)

    def together(one, other):
        total = torch.logaddexp(one.total, other.total)
        shares = [(of.total - total).exp()[..., None] * of.taken for of in (one, other)]
        return Partial(sum(shares), total)

    student, result = GapCode(source, instead={"attend": noted, "combine": together}), None
    block = torch.stack([key, value])
    common = dict(rank=rank, size=ranks, right=(rank + 1) % ranks, left=(rank - 1) % ranks, query=query)
    common |= dict(key=key, value=value, places=places(case), causal=case["causal"], attend=noted, combine=together)
    with collectives.noted(all_sent=True):
        for step in range(ranks):
            travelling.append(False)
            step_names = dict(step=step, source=(rank - step) % ranks, arriving=torch.empty_like(block))
            names = student.run(**common, **step_names, block=block, result=result)
            block, result = names.block, names.result
            if not isinstance(result, Partial):
                raise StudentMistake(f"`result` is {a_kind(result)} after step {step}, but it must be a Partial")
            if step < ranks - 1:
                a_tensor("block", block, (2, *OF_A_RANK))
    taken = a_tensor("result.taken", result.taken, OF_A_RANK)
    return {"taken": taken.numpy().copy(), "to": [int(to) for to, _ in collectives.messages], "travelling": travelling}


def heads_of(case, rank):
    """Return all heads of a rank's tokens."""
    chance = torch.Generator().manual_seed(case["seed"] + rank)
    return torch.randn(case["heads"], case["tokens"], WIDTH, generator=chance, dtype=torch.float64)


def to_heads(rank, ranks, source, case):
    """Return `whole`, and the messages of this rank."""
    join(rank, ranks)
    collectives = Collectives()
    with collectives.noted(all_ended=True):
        whole = GapCode(source).run(part=heads_of(case, rank), size=ranks).whole
    whole = a_tensor("whole", whole, (case["heads"] // ranks, ranks * case["tokens"], WIDTH))
    return {"whole": whole.numpy().copy(), "sent": collectives.hand_over()}
