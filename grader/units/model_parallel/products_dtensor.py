"""The checks of products_dtensor.py: which layers PyTorch divides, and how often the ranks communicate."""

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array, Counts

COLUMNS = "attention.query", "attention.key", "attention.value", "mlp.up"
ROWS = "attention.out", "mlp.down"
TOKENS = 2, 3  # as in the probes


def divided(seen, case, expected):
    """A judge: each layer is divided in its dimension, and the block gives what the whole one gives."""
    found = seen[0]["divided"]
    for name, dimension in {**dict.fromkeys(COLUMNS, 0), **dict.fromkeys(ROWS, 1)}.items():
        if found[name] == -1:
            return f"`{name}` is not divided: all ranks have all of it"
        if found[name] != dimension:
            right, why = (
                ("ColwiseParallel", "its outputs")
                if dimension == 0
                else ("RowwiseParallel", "its inputs are divided already, so")
            )
            return (
                f"`{name}` is divided in its {'inputs' if dimension == 0 else 'outputs'}; {why}"
                f" {'are to be' if dimension == 0 else 'it is to be'} divided: {right}"
            )
    if problem := next((of_rank["problem"] for of_rank in seen if of_rank["problem"]), ""):
        return f"the block does not run with this plan: {problem}"
    for rank, of_rank in enumerate(seen):
        if not (
            criteria.close(of_rank["outputs"], expected["outputs"])
            and criteria.close(of_rank["of_tokens"], expected["of_tokens"])
        ):
            return f"on rank {rank}, the block does not give what the whole one gives, or other gradients"
    return None


def two_in_each_direction(seen, case, expected):
    forward, backward = seen[0]["counts"]
    # nothing is counted where the block does not run
    if (forward, backward) == (2, 2) or any(of_rank["problem"] for of_rank in seen):
        return None
    why = (
        ": query, key and value each add up their gradients; `entrance` makes one DTensor of their input"
        if (forward, backward) == (2, 4)
        else ""
    )
    return (
        f"the ranks communicate {forward} times in forward and {backward} times in backward; 2 and 2 do, one for the"
        f" attention and one for the MLP{why}"
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
                "the layers are divided",
                2,
                divided,
                "Columns where a split part begins, rows where it ends.",
            ),
            Criterion(
                "one_all_reduce_direction",
                "one all-reduce in each direction",
                1,
                two_in_each_direction,
                'The style of "attention" is `entrance`.',
                needs="layers_divided",
            ),
        ),
        "grader.units.model_parallel.oracles.oracle_products_dtensor:plan",
        observed=_form,
    ),
)
