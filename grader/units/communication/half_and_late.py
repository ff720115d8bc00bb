"""The checks of half_and_late.py, PyTorch: the hooks against a simulation of their definition, and what they send."""

from grader.checks.check import Check, Criterion
from grader.units.communication.hooks import ORACLE, PROBE, as_simulated, observed

BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


def half_the_bytes(seen, case, expected):
    least, most = _bytes(case)
    for rank, of_rank in enumerate(seen):
        for sent in of_rank["sent"]:
            total = sum(size for _, size in sent)
            if total > most:
                return (
                    f"rank {rank} hands {total} bytes to the all-reduce of {sum(case['lengths'])} gradients; as"
                    f" {case['dtype']} they have {least}"
                )
            if not total:
                return f"rank {rank} sends nothing"
    return None


def of_all_ranks(seen, case, expected):
    problem = as_simulated("the mean")(seen, case, expected)
    if problem and any(of_rank["forgotten"] for of_rank in seen):
        return "nobody waits for the all-reduce: `future` must be of what it gives, as work.get_future().then(...) is"
    return problem


def of_the_step_before(seen, case, expected):
    problem = as_simulated("the mean")(seen, case, expected)
    known = {*expected, *(of_rank["misused"] for of_rank in seen)}
    if problem not in known and any(of_rank["forgotten"] for of_rank in seen):
        return (
            "nobody waits for the all-reduce of the step before: its mean may not be there yet, which is a matter of"
            " chance"
        )
    return problem


def in_flight(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        for number, sent in enumerate(of_rank["sent"]):
            if len(sent) != len(case["lengths"]):
                others = [name for name, _ in sent if name != "allreduce"]
                what = " and ".join([f"{len(sent) - len(others)} all-reduces", *others])
                return (
                    f"in step {number + 1} rank {rank} starts {what} for {len(case['lengths'])} buckets: one for each,"
                    " in every step"
                )
        if any(of_rank["waited"]):
            return (
                f"in step {of_rank['waited'].index(True) + 1} rank {rank} waits for the all-reduce that it has just"
                " started: it is to go on during the next step"
            )
        if problem := as_dtype(rank, of_rank["sent"], case):
            return problem
    return None


def as_dtype(rank, steps, case):
    """None if in each of the `steps` a rank sends as many bytes as `dtype` needs; else a sentence."""
    dtype = case.get("dtype", "float32")
    right, most = _bytes(case)
    for number, sent in enumerate(steps):
        total = sum(size for _, size in sent)
        if not right <= total <= most:
            return (
                f"in step {number + 1} rank {rank} hands {total} bytes to the all-reduce of {sum(case['lengths'])}"
                f" gradients; as `dtype`, {dtype} here, they have {right}"
            )
    return None


def _bytes(case):
    """(the bytes of all gradients as the case's type, those with one number more in each bucket, such as a count of the
    ranks)."""
    size, lengths = BYTES[case.get("dtype", "float32")], case["lengths"]
    return size * sum(lengths), size * (sum(lengths) + len(lengths))


LATE = {"function": "late", "ranks": 2, "lengths": [4, 7], "steps": 4}
HALF = (
    Criterion(
        "mean_gradients",
        "the mean of the gradients",
        2,
        of_all_ranks,
        "Divide by dist.get_world_size(), convert with .to(dtype), and back when it has come.",
    ),
    Criterion(
        "half_bytes",
        "half the bytes",
        1,
        half_the_bytes,
        "What goes into dist.all_reduce must have the short type already.",
        needs="mean_gradients",
    ),
)
CHECKS = (
    Check(
        "half",
        PROBE,
        (
            {"function": "half", "dtype": "float16", "ranks": 2, "lengths": [5, 9], "steps": 2},
            # bfloat16 rounds half of it by 64
            {"function": "half", "dtype": "float16", "ranks": 2, "lengths": [4], "steps": 1, "large": [32_896, 32_896]},
            {"function": "half", "dtype": "float16", "ranks": 2, "lengths": [3], "steps": 1, "large": [100_000, -8]},
            {
                "function": "half",
                "dtype": "bfloat16",
                "ranks": 2,
                "lengths": [3],
                "steps": 1,
                "large": [3_000_000, 3_000_000],
            },
        ),
        HALF,
        ORACLE,
        observed=observed,
    ),
    Check(
        "late",
        PROBE,
        (
            LATE,
            LATE | {"dtype": "float16", "large": [8_224, 8_224]},
            {"function": "late", "ranks": 2, "lengths": [5, 5, 3], "steps": 3},
        ),
        (
            Criterion(
                "mean_of_last_step",
                "the mean of the step before",
                2,
                of_the_step_before,
                "pending[index] has what was started in the step before.",
            ),
            Criterion(
                "one_all_reduce_per_bucket",
                "an all-reduce for each bucket, in every step",
                1,
                in_flight,
                "dist.all_reduce(tensor, async_op=True) starts one.",
                needs="mean_of_last_step",
            ),
        ),
        ORACLE,
        observed=observed,
    ),
)
