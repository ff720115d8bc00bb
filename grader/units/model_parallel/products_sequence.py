"""The check of products_sequence.py: what its two operators return, and which collectives they use."""

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from handson.words import counted

MODULE = "products_sequence:operators"
MEANING = {
    ("Gather", "forward"): "the tokens of all ranks, in the order of the ranks",
    ("Gather", "backward"): "the sum of all ranks' gradients for this rank's tokens",
    ("Scatter", "forward"): "the sum of all ranks' terms for this rank's tokens",
    ("Scatter", "backward"): "the gradients of all ranks' tokens, in the order of the ranks",
}


def returns(name):
    """Return a judge of an operator's results in both directions."""

    def judge(seen, case, expected):
        for rank, (found, right) in enumerate(zip(seen, expected)):
            for direction in ("forward", "backward"):
                numbers, values = found[name][direction], right[name][direction]
                if not criteria.close(numbers, values["right"]):
                    wrong = f"on rank {rank}, `{name}` in {direction} does not return {MEANING[name, direction]}"
                    return criteria.with_reason(wrong, criteria.explained_by(numbers, values))
        return None

    return judge


def one_of_each(seen, case, expected):
    """Judge that each operator uses one all-gather and one reduce-scatter."""
    if len(case["groups"][0] if case.get("groups") else seen) == 1:
        return None  # a group of one rank needs none
    for rank, of_rank in enumerate(seen):
        for name in ("Gather", "Scatter"):
            sent = [kind for kind, _ in of_rank[name]["sent"]]
            if "allreduce" in "".join(sent).replace("_", ""):
                return (
                    f"on rank {rank}, `{name}` uses an all-reduce, which sends twice as many bytes: this rank needs the"
                    " sum for its own tokens only, so a reduce-scatter is enough"
                )
            if len(sent) != 2:
                return (
                    f"on rank {rank}, `{name}` uses {counted(len(sent), 'collective')} in forward and backward"
                    " together; one all-gather and one reduce-scatter are enough"
                )
    return None


def _form(case):
    of_one = {"forward": Array((None, None, None)), "backward": Array((None, None, None)), "sent": [(str, int)]}
    return {"Gather": of_one, "Scatter": of_one}


CHECKS = (
    Check(
        "gather_and_scatter",
        f"grader.units.model_parallel.probes.probe_{MODULE}",
        ({"ranks": 2}, {"ranks": 2, "groups": [[0], [1]]}),
        (
            Criterion(
                "tokens_gathered",
                "`Gather` returns all tokens, and the gradient of this rank's tokens",
                2,
                returns("Gather"),
                "all_gather in forward, reduce_scatter in backward.",
            ),
            Criterion(
                "sum_scattered",
                "`Scatter` returns the sum for this rank's tokens, and the gradient of all tokens",
                2,
                returns("Scatter"),
                "reduce_scatter in forward, all_gather in backward.",
            ),
            Criterion(
                "no_all_reduce",
                "one all-gather and one reduce-scatter for each operator",
                1,
                one_of_each,
                "An all-reduce sends the bytes of both.",
                needs="sum_scattered",
            ),
        ),
        f"grader.units.model_parallel.oracles.oracle_{MODULE}",
        observed=_form,
    ),
)
