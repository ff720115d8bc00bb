"""The checks of half_and_late.py, PyTorch: the hooks are compared with a simulation of their definition, and their
bytes with those of the type."""

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
                    f"rank {rank} passes {total} bytes to the all-reduce of {sum(case['lengths'])} gradients; as"
                    f" {case['dtype']}, the gradients have {least} bytes"
                )
            if not total:
                return f"rank {rank} sends no gradients"
    return None


def of_all_ranks(seen, case, expected):
    problem = as_simulated("the mean")(seen, case, expected)
    if problem and any(of_rank["forgotten"] for of_rank in seen):
        return "the all-reduce is never waited for: derive `future` from it, with work.get_future().then(...)"
    if problem is None and (short := {one for of_rank in seen for one in of_rank["types"]} - {"float32"}):
        return (
            f"the result has the type {short.pop()}, but the gradients have the type float32: convert the tensor back"
            " with .to(gradients.dtype)"
        )
    return problem


def of_the_step_before(seen, case, expected):
    problem = as_simulated("the mean")(seen, case, expected)
    known = {*expected, *(of_rank["misused"] for of_rank in seen)}
    if problem not in known and any(of_rank["forgotten"] for of_rank in seen):
        return (
            "the all-reduce of the previous step is never waited for, so it depends on chance whether `mean` is"
            " complete: call work.wait()"
        )
    return problem


def in_flight(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        for number, sent in enumerate(of_rank["sent"]):
            if len(sent) != len(case["lengths"]):
                others = [name for name, _ in sent if name != "allreduce"]
                what = " and ".join([f"{len(sent) - len(others)} all-reduces", *others])
                return (
                    f"in step {number + 1}, rank {rank} starts {what} for {len(case['lengths'])} buckets: start one"
                    " all-reduce per bucket in every step"
                )
        if any(of_rank["waited"]):
            return (
                f"in step {of_rank['waited'].index(True) + 1}, rank {rank} waits for the all-reduce that it has just"
                " started: this all-reduce should run during the next step"
            )
        if problem := as_dtype(rank, of_rank["sent"], case):
            return problem
    return None


def as_dtype(rank, steps, case):
    """Return None if a rank sends as many bytes as `dtype` needs in each of the `steps`, or otherwise a sentence."""
    dtype = case.get("dtype", "float32")
    right, most = _bytes(case)
    for number, sent in enumerate(steps):
        total = sum(size for _, size in sent)
        if not right <= total <= most:
            return (
                f"in step {number + 1}, rank {rank} passes {total} bytes to the all-reduce of {sum(case['lengths'])}"
                f" gradients; as `dtype`, here {dtype}, the gradients have {right} bytes"
            )
    return None


def _bytes(case):
    """Return (the bytes of all gradients in the case's type, the bytes with one additional number per bucket, such as a
    count of the ranks)."""
    size, lengths = BYTES[case.get("dtype", "float32")], case["lengths"]
    return size * sum(lengths), size * (sum(lengths) + len(lengths))


LATE = {"function": "late", "ranks": 2, "lengths": [4, 7], "steps": 4}
HALF = (
    Criterion(
        "mean_gradients",
        "the hook returns the mean of the gradients",
        2,
        of_all_ranks,
        "Divide by dist.get_world_size(), convert with .to(dtype), and convert back after the all-reduce.",
    ),
    Criterion(
        "half_bytes",
        "the gradients are sent as `dtype`",
        1,
        half_the_bytes,
        "Convert the gradients to `dtype` before you pass them to dist.all_reduce.",
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
                "each step uses the mean of the previous step",
                2,
                of_the_step_before,
                "pending[index] holds the tensor and the work of the previous step's all-reduce.",
            ),
            Criterion(
                "one_all_reduce_per_bucket",
                "every step starts one all-reduce per bucket",
                1,
                in_flight,
                "dist.all_reduce(tensor, async_op=True) starts an all-reduce and returns its work.",
                needs="mean_of_last_step",
            ),
        ),
        ORACLE,
        observed=observed,
    ),
)
