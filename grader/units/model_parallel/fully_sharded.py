"""The check of fully_sharded.py: which parameters are sharded, when they are gathered, and in which data type."""

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from handson.words import counted

TOLERANCE = 1e-4  # for gradients in float32: the order of the sums differs
ROUNDED = 0.05  # the tolerance for gradients that bfloat16 rounds
TYPES = {2: "16 bits", 4: "float32", 8: "float64"}


def _calls(of_rank, direction, kind):
    return [numbers for name, numbers in of_rank[direction] if kind in name]


def by_block(seen, case, expected):
    """Judge whether each block is sharded on its own, the model shards the remaining parameters, and the gradients are
    the mean over all ranks."""
    for rank, of_rank in enumerate(seen):
        if whole := of_rank["whole"]:
            return (
                f"`{whole[0]}` and {counted(len(whole) - 1, 'other parameter')} are not sharded, so their"
                " gradients are not averaged: call fully_shard also for `model`, after its blocks"
            )
        gathers, wanted = len(_calls(of_rank, "forward", "allgather")), case["blocks"] + 1
        if len(seen) > 1 and gathers != wanted:  # a single rank gathers nothing
            return (
                f"forward has {gathers} all-gather{'s' * (gathers != 1)}, but {case['blocks']} blocks and the"
                f" remaining parameters need {wanted}: call fully_shard for each block, since parameters that are"
                " wrapped together are in memory together"
            )
        tolerance = ROUNDED if _ignores_dtype(of_rank) else TOLERANCE  # `precision` judges the data type
        if not criteria.close(of_rank["gradients"], expected["gradients"], tolerance):
            return f"the gradients of rank {rank} are not the mean over all ranks: fully_shard each block and `model`"
    return None


def _ignores_dtype(of_rank):
    """Return whether a rank gathers half of the bytes that parameters in float32 have, if `dtype` is float32."""
    return round(sum(_calls(of_rank, "float32", "allgather")) / of_rank["numbers"]) == 2


def again(seen, case, expected):
    """Judge whether blocks are gathered again for their backward."""
    if by_block(seen, case, expected):  # then the number of all-gathers shows nothing
        return None
    gathers = len(_calls(seen[0], "backward", "allgather"))
    if len(seen) == 1 or gathers >= case["blocks"]:
        return None
    return (
        f"backward has {gathers} all-gather{'s' * (gathers != 1)} for {case['blocks']} blocks, so blocks stay in memory"
        " after forward: set reshard_after_forward=True"
    )


def precision(seen, case, expected):
    """Judge whether parameters are gathered in bfloat16, and gradients summed in float32."""
    if len(seen) == 1 or by_block(seen, case, expected):
        return None
    if _ignores_dtype(seen[0]):
        return (
            "parameters are gathered in 16 bits although `dtype` is float32, because the policy ignores `dtype`: give"
            " it param_dtype=dtype"
        )
    numbers = seen[0]["numbers"]
    gathered = sum(_calls(seen[0], "forward", "allgather")) / numbers
    reduced = sum(_calls(seen[0], "backward", "reduce_scatter")) / numbers / len(seen)
    if round(gathered) != 2:
        return (
            f"parameters are gathered in {TYPES.get(round(gathered), 'another type')} although `dtype` is bfloat16:"
            " give the policy param_dtype=dtype"
        )
    if round(reduced) != 4:
        return (
            f"gradients are summed in {TYPES.get(round(reduced), 'another type')} if `dtype` is bfloat16, which rounds"
            " small gradients away: give the policy reduce_dtype=torch.float32"
        )
    return None


def _form(case):
    calls = [(str, int)]
    sent = dict.fromkeys(("float32", "forward", "backward"), calls)
    return {"whole": [str], "gradients": Array((None,)), "numbers": int} | sent


MODULE = "fully_sharded:wrap"
CHECKS = {
    "pytorch/fully_sharded.py": (
        Check(
            "wrap",
            f"grader.units.model_parallel.probes.probe_{MODULE}",
            ({"ranks": 2, "width": 8, "blocks": 3},),
            (
                Criterion(
                    "wrapped_by_block",
                    "each block is sharded on its own, and the model shards the remaining parameters",
                    2,
                    by_block,
                    "Call fully_shard(block, ...) in a loop, then fully_shard(model, ...).",
                ),
                Criterion(
                    "gathered_again",
                    "each block is gathered again for backward",
                    1,
                    again,
                    "Set reshard_after_forward=True for each block.",
                    needs="wrapped_by_block",
                ),
                Criterion(
                    "mixed_precision",
                    "parameters are gathered in bfloat16, and gradients summed in float32",
                    1,
                    precision,
                    "Pass mp_policy=MixedPrecisionPolicy(param_dtype=..., reduce_dtype=...).",
                    needs="wrapped_by_block",
                ),
            ),
            f"grader.units.model_parallel.oracles.oracle_{MODULE}",
            observed=_form,
        ),
    )
}
