"""The checks of attention.py: partial softmaxes, the ring, and the all-to-all by heads."""

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from handson.words import counted, enough

PROBES, ORACLES = (
    "grader.units.attention_and_experts.probes.probe_attention:",
    "grader.units.attention_and_experts.oracles.oracle_attention:",
)


def as_expected(name, otherwise):
    """Return a judge that requires the oracle's values of `name` on each rank. otherwise: the sentence for a mistake
    that no known misconception explains."""

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
                return f"rank {rank} calls {shown}: call all_to_all_single once, which sends each number only once"
    return None


def balanced_chunks(seen, case, expected):
    """Judge whether each rank has two chunks that together see the same number of keys."""
    for size, of_ranks in zip(case["sizes"], seen[0]["chunks"]):
        for rank, mine in enumerate(of_ranks):
            if len(mine) != 2:
                return f"`mine` has {len(mine)} chunks on rank {rank} of {size}, but it must have two of the {2 * size}"
        if sorted(sum(of_ranks, [])) != list(range(2 * size)):
            return f"the {size} ranks get the chunks {of_ranks}, but each of the {2 * size} must be on exactly one rank"
        if size > 1 and all(abs(mine[0] - mine[1]) == 1 for mine in of_ranks):
            return (
                f"`mine` has two neighbouring chunks on each of {size} ranks, which are a contiguous stretch again: the"
                " last rank has the most work"
            )
        for rank, mine in enumerate(of_ranks):
            if sum(mine) != 2 * size - 1:
                return (
                    f"`mine` has the chunks {mine} on rank {rank} of {size}: chunk i sees i earlier chunks, so the two"
                    f" numbers of each rank must add up to {2 * size - 1}"
                )
    return None


def growing(seen, case, expected):
    for size, of_ranks in zip(case["sizes"], seen[0]["chunks"]):
        if wrong := next((mine for mine in of_ranks if mine != sorted(mine)), None):
            return f"`mine` has the chunks {wrong} on one of {size} ranks: put the earlier chunk first"
    return None


def to_the_right(seen, case, expected):
    ranks = len(seen)
    for rank, of_rank in enumerate(seen):
        if others := [to for to in of_rank["to"] if to != (rank + 1) % ranks]:
            return f"rank {rank} sends to rank {others[0]}, but in a ring it sends only to its right neighbour"
        if len(of_rank["to"]) != ranks - 1:
            return (
                f"rank {rank} sends {counted(len(of_rank['to']), 'message')} in {ranks} steps, but"
                f" {enough(ranks - 1)}: after the last step no rank needs another block"
            )
    return None


def meanwhile(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if not all(of_rank["travelling"][:-1]):
            return (
                f"rank {rank} calls `attend` while no message is in flight: start to send before `attend`, and wait"
                " after it"
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
                "`total` covers the keys of both",
                1,
                as_expected("total", "`total` is not the logarithm of the sum over the keys of both"),
                "torch.logaddexp(a, b) computes log(exp(a) + exp(b)) without overflow.",
            ),
            Criterion(
                "shares",
                "`taken` weights both with their shares",
                2,
                as_expected("taken", "`taken` differs from the result of one softmax over all keys"),
                "For each query, the share of `one` is exp(one.total - total). [..., None] adds the last dimension.",
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
                "all ranks have the same amount of work",
                2,
                balanced_chunks,
                "Combine the first chunk with the last, the second with the last but one: their numbers have the same"
                " sum.",
            ),
            Criterion(
                "growing_order",
                "`mine` is in ascending order",
                1,
                growing,
                "Put the earlier chunk first in the list.",
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
                "the result covers the keys of all ranks",
                2,
                as_expected("taken", "`result` differs from attention to all keys and values"),
                "In each step, attend to `block`, combine, and set `block` to `arriving`.",
            ),
            Criterion(
                "around_the_ring",
                "each step but the last sends a block to the right",
                1,
                to_the_right,
                "If step < size - 1, send `block` to `right` and receive `arriving` from `left`.",
                needs="all_keys",
            ),
            Criterion(
                "while_computing",
                "blocks travel while the rank computes",
                1,
                meanwhile,
                "dist.batch_isend_irecv starts both messages. Wait for the works that it returns after `attend`.",
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
                "`whole` has all tokens of the rank's heads",
                2,
                as_expected(
                    "whole", "`whole` does not contain all tokens of this rank's heads in the order of the ranks"
                ),
                "received.unflatten(0, (size, -1)) adds a dimension for the ranks. Move it next to the tokens'"
                " dimension.",
            ),
            Criterion(
                "one_all_to_all",
                "one all-to-all is enough",
                1,
                one_all_to_all,
                "Call dist.all_to_all_single(received, part.contiguous()) once.",
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
