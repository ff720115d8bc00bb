"""The check of fully_sharded.py: what fully_shard divides, when it is gathered, and in which type."""

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

TOLERANCE = 1e-4  # of gradients in float32, which ranks add up in another order
TYPES = {2: "16 bits", 4: "float32", 8: "float64"}


def _calls(of_rank, direction, kind):
    return [numbers for name, numbers in of_rank[direction] if kind in name]


def by_block(seen, case, expected):
    """A judge: each block is divided by itself, the model takes the rest, and the gradients are the mean of all
    ranks."""
    for rank, of_rank in enumerate(seen):
        if whole := of_rank["whole"]:
            return (
                f"all ranks have all of `{whole[0]}` and of {len(whole) - 1} other parameters, which nobody averages:"
                " fully_shard also the model itself, after its blocks"
            )
        gathers, wanted = len(_calls(of_rank, "forward", "allgather")), case["blocks"] + 1
        if len(seen) > 1 and gathers != wanted:  # a rank alone gathers nothing
            return (
                f"in forward, the ranks gather {gathers} time{'s' * (gathers != 1)}; {case['blocks']} blocks and the"
                f" rest of the model make {wanted}: what is wrapped together is in memory together"
            )
        if not criteria.close(of_rank["gradients"], expected["gradients"], TOLERANCE):
            return f"on rank {rank}, the gradients in float32 are not the mean of all ranks' gradients"
    return None


def again(seen, case, expected):
    """A judge: blocks are gathered again for their backward."""
    gathers = len(_calls(seen[0], "backward", "allgather"))
    if len(seen) == 1 or gathers >= case["blocks"]:
        return None
    return (
        f"in backward, the ranks gather {gathers} times for {case['blocks']} blocks: the others stay in memory after"
        " forward: reshard_after_forward=True"
    )


def precision(seen, case, expected):
    """A judge: parameters travel in bfloat16, gradients in float32."""
    if len(seen) == 1:
        return None
    numbers = seen[0]["numbers"]
    gathered = sum(_calls(seen[0], "forward", "allgather")) / numbers
    reduced = sum(_calls(seen[0], "backward", "reduce_scatter")) / numbers / len(seen)
    if round(gathered) != 2:
        return (
            f"with `dtype` bfloat16, the parameters are gathered in {TYPES.get(round(gathered), 'another type')}:"
            " the policy needs param_dtype=dtype"
        )
    if round(reduced) != 4:
        return (
            f"with `dtype` bfloat16, the gradients are added up in {TYPES.get(round(reduced), 'another type')}, which"
            " loses small ones: the policy needs reduce_dtype=torch.float32"
        )
    return None


def _form(case):
    calls = [(str, int)]
    return {"whole": [str], "gradients": Array((None,)), "forward": calls, "backward": calls, "numbers": int}


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
                    "each block is divided by itself, the model takes the rest",
                    2,
                    by_block,
                    "fully_shard(block, ...) in a loop, then fully_shard(model, ...).",
                ),
                Criterion(
                    "gathered_again",
                    "blocks are gathered again for backward",
                    1,
                    again,
                    "reshard_after_forward=True",
                    needs="wrapped_by_block",
                ),
                Criterion(
                    "mixed_precision",
                    "parameters in bfloat16, sums in float32",
                    1,
                    precision,
                    "MixedPrecisionPolicy(param_dtype=..., reduce_dtype=...)",
                    needs="wrapped_by_block",
                ),
            ),
            f"grader.units.model_parallel.oracles.oracle_{MODULE}",
            observed=_form,
        ),
    )
}
