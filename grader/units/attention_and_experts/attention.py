"""The checks of attention.py: partial softmaxes, the ring, and the all-to-all by heads."""

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBES, ORACLES = (
    "grader.units.attention_and_experts.probes.probe_attention:",
    "grader.units.attention_and_experts.oracles.oracle_attention:",
)


def as_expected(name, otherwise):
    """A judge: on each rank, `name` is what the oracle says; otherwise: the sentence for what no misconception
    explains."""

    def judge(seen, case, expected):
        for rank, (of_rank, right) in enumerate(zip(seen, expected)):
            problem = criteria.explained_by(of_rank[name], right[name])
            if problem is not None:
                where = f"on rank {rank}, " if len(seen) > 1 and not problem else ""
                return where + (problem or otherwise)
        return None

    return judge


def one_all_to_all(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if [name for name, _ in of_rank["sent"]] not in (["alltoall_base"], ["all_to_all_single"], ["alltoall"]):
            shown = ", ".join(name for name, _ in of_rank["sent"]) or "nothing"
            if len(seen) > 1 or of_rank["sent"]:
                return f"rank {rank} hands over {shown}; one all_to_all_single does it, and sends each number once"
    return None


def balanced_chunks(seen, case, expected):
    """A judge: each rank has two chunks, which see equally many keys together."""
    for size, of_ranks in zip(case["sizes"], seen[0]["chunks"]):
        for rank, mine in enumerate(of_ranks):
            if len(mine) != 2:
                return f"rank {rank} of {size} gets {len(mine)} chunks; `mine` has two of the {2 * size}"
        if sorted(sum(of_ranks, [])) != list(range(2 * size)):
            return f"the {size} ranks get the chunks {of_ranks}; each of the {2 * size} belongs to one rank"
        if size > 1 and all(abs(mine[0] - mine[1]) == 1 for mine in of_ranks):
            return (
                f"with {size} ranks, each gets two chunks that follow each other, which is a stretch again: the last"
                " rank has most to do"
            )
        for rank, mine in enumerate(of_ranks):
            if sum(mine) != 2 * size - 1:
                return (
                    f"rank {rank} of {size} gets the chunks {mine}; chunk i sees i chunks before it, so the numbers of"
                    f" each rank's two should add up to {2 * size - 1}, for all to compute equally much"
                )
    return None


def growing(seen, case, expected):
    for size, of_ranks in zip(case["sizes"], seen[0]["chunks"]):
        if wrong := next((mine for mine in of_ranks if mine != sorted(mine)), None):
            return f"with {size} ranks, one gets the chunks {wrong}: its places must be in growing order"
    return None


def to_the_right(seen, case, expected):
    ranks = len(seen)
    for rank, of_rank in enumerate(seen):
        if others := [to for to in of_rank["to"] if to != (rank + 1) % ranks]:
            return f"rank {rank} sends to rank {others[0]}; in the ring it sends to its right neighbour only"
        if len(of_rank["to"]) != ranks - 1:
            return (
                f"rank {rank} sends {len(of_rank['to'])} messages in {ranks} steps; {ranks - 1} do: after the last step"
                " nobody needs another block"
            )
    return None


def meanwhile(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if not all(of_rank["travelling"][:-1]):
            return (
                f"rank {rank} attends to a block while no message is on its way: begin to send before `attend`, and"
                " wait after it"
            )
    return None


def _shape(case):
    return case["heads"], case["queries"], 3


CHECKS = (
    Check(
        "combine",
        f"{PROBES}combine",
        ({"heads": 2, "queries": 5, "high": 0}, {"heads": 1, "queries": 4, "high": 900}),
        (
            Criterion(
                "sum_of_both",
                "the sum of both",
                1,
                as_expected("total", "`total` is not the logarithm of the sum of both"),
                "torch.logaddexp(a, b) is log(exp(a) + exp(b)), without an overflow.",
            ),
            Criterion(
                "shares",
                "the share of each",
                2,
                as_expected("taken", "`taken` is not what one softmax over all keys gives"),
                "The share of `one` is exp(one.total - total), for each query; [..., None] gives it a last dimension.",
            ),
        ),
        f"{ORACLES}combine",
        observed=lambda case: {"total": Array(_shape(case)[:2]), "taken": Array(_shape(case))},
    ),
    Check(
        "zigzag",
        f"{PROBES}zigzag",
        ({"sizes": [2, 4]},),
        (
            Criterion(
                "equally_much",
                "all ranks compute equally much",
                2,
                balanced_chunks,
                "The first and the last chunk, then the second and the last but one: their numbers have the same sum.",
            ),
            Criterion(
                "growing_order",
                "in growing order",
                1,
                growing,
                "The earlier chunk comes first in the list.",
                needs="equally_much",
            ),
        ),
        observed=lambda case: {"chunks": [[[int]]]},
    ),
    Check(
        "ring_step",
        f"{PROBES}ring",
        ({"ranks": 3, "causal": False}, {"ranks": 3, "causal": True}),
        (
            Criterion(
                "all_keys",
                "the keys of all ranks",
                2,
                as_expected("taken", "the result is not that of all keys and values"),
                "Each step attends to `block`, combines, and goes on with what has arrived.",
            ),
            Criterion(
                "around_the_ring",
                "a block in each step but the last, to the right",
                1,
                to_the_right,
                "if step < size - 1: send `block` right, receive `arriving` from the left.",
                needs="all_keys",
            ),
            Criterion(
                "while_computing",
                "blocks travel while the rank computes",
                1,
                meanwhile,
                "dist.batch_isend_irecv begins both; wait for its works after `attend`.",
                needs="all_keys",
            ),
        ),
        f"{ORACLES}ring",
        observed=lambda case: {"taken": Array((2, 2, 3)), "to": [int], "travelling": (bool,) * case["ranks"]},
    ),
    Check(
        "to_heads",
        f"{PROBES}to_heads",
        ({"ranks": 2, "heads": 6, "tokens": 2}, {"ranks": 3, "heads": 3, "tokens": 2}),
        (
            Criterion(
                "all_tokens",
                "all tokens of the rank's heads",
                2,
                as_expected("whole", "`whole` is not all tokens of this rank's heads, in the order of the ranks"),
                "received.unflatten(0, (size, -1)) has a dimension for the ranks: bring it beside that of the tokens.",
            ),
            Criterion(
                "one_all_to_all",
                "one all-to-all",
                1,
                one_all_to_all,
                "dist.all_to_all_single(received, part.contiguous())",
                needs="all_tokens",
            ),
        ),
        f"{ORACLES}to_heads",
        observed=lambda case: {
            "whole": Array((case["heads"] // case["ranks"], case["tokens"] * case["ranks"], 3)),
            "sent": [(str, int)],
        },
    ),
)
