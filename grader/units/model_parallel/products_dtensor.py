"""The checks of products_dtensor.py: the layers that PyTorch divides, and the number of collectives."""

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array, Counts
from handson.words import counted

COLUMNS = "attention.query", "attention.key", "attention.value", "mlp.up"
ROWS = "attention.out", "mlp.down"
TOKENS = 2, 3  # the same as in the probes


def divided(seen, case, expected):
    """Judge that each layer is divided in its dimension, and the block returns the outputs of the whole block."""
    found = seen[0]["divided"]
    for name, dimension in {**dict.fromkeys(COLUMNS, 0), **dict.fromkeys(ROWS, 1)}.items():
        if found[name] == -1:
            return f"your plan does not divide `{name}`: all ranks have all of it"
        if found[name] != dimension:
            if dimension == 0:
                return f"your plan divides the inputs of `{name}`, but it should divide the outputs: ColwiseParallel"
            return (
                f"your plan divides the outputs of `{name}`, but its inputs are divided already, so it should divide"
                " the inputs: RowwiseParallel"
            )
    if problem := next((of_rank["problem"] for of_rank in seen if of_rank["problem"]), ""):
        return f"the block does not run with this plan: {problem}"
    for rank, of_rank in enumerate(seen):
        if not (
            criteria.close(of_rank["outputs"], expected["outputs"])
            and criteria.close(of_rank["of_tokens"], expected["of_tokens"])
        ):
            return f"on rank {rank}, the outputs or gradients of the block are not those of the whole block"
    return None


def two_in_each_direction(seen, case, expected):
    forward, backward = seen[0]["counts"]
    # nothing is counted where the block does not run
    if (forward, backward) == (2, 2) or any(of_rank["problem"] for of_rank in seen):
        return None
    why = (
        ": query, key and value each run an all-reduce of their gradients; `entrance` makes one DTensor of their input"
        if (forward, backward) == (2, 4)
        else ""
    )
    return (
        f"the ranks run {counted(forward, 'collective')} in forward and {backward} in backward; 2 and 2 are"
        f" enough, one for the attention and one for the MLP{why}"
    )


def _form(case):
    tokens = Array((*TOKENS, case["width"]))
    return {"divided": Counts(int), "outputs": tokens, "of_tokens": tokens, "counts": (int, int), "problem": str}


CHECKS = (
    Check(
        "plan",
        "grader.units.model_parallel.probes.probe_products_dtensor:plan",
        ({"ranks": 2, "width": 8, "heads": 2},),
        (
            Criterion(
                "layers_divided",
                "the plan divides all six layers in the right dimension",
                2,
                divided,
                "Use columns where a split part begins, and rows where it ends.",
            ),
            Criterion(
                "one_all_reduce_direction",
                "one all-reduce in each direction",
                1,
                two_in_each_direction,
                'Use `entrance` as the style of "attention".',
                needs="layers_divided",
            ),
        ),
        "grader.units.model_parallel.oracles.oracle_products_dtensor:plan",
        observed=_form,
    ),
)
