"""The checks of the gaps in the notebooks 05_communication and 05b_communication: titles, hints and points, and no
answers."""

import re

from grader.checks.check import Check, Criterion
from grader.checks.notebook_functions import PROBES, function, prediction


def each_once(seen, case, expected):
    """A judge: the text names all of case["methods"], each once, in any order. What stands between names, and numbers,
    make no difference."""
    words, methods = re.findall(r"\w+(?:-\w+)*", seen[0]["value"].lower()), case["methods"]
    # first: one of the methods may be missing since its name is wrong
    if other := [word for word in words if word not in methods and not word.isdigit()]:
        return f"there is no method {other[0]!r:.40} in the list; {', '.join(methods)} are to be ordered"
    wrong = [method for method in methods if words.count(method) != 1]
    return (
        f"{wrong[0]} is in it {words.count(wrong[0])} times; each of {', '.join(methods)} should be in it once"
        if wrong
        else None
    )


def order(gap, *methods):
    """The check of a prediction in which order methods will be there."""
    hint = "Write the names with spaces between them; the order need not come true."
    criterion = Criterion("prediction", "a prediction", 1, each_once, hint)
    return Check(
        gap,
        f"{PROBES}:word",
        ({"name": gap, "methods": list(methods), "measured": " ".join(methods)},),
        (criterion,),
        observed=lambda case: {"value": str},
    )


ALL_REDUCES = (
    function(
        "bytes_sent",
        "what the busiest rank sends",
        "naive: rank 0 sends the sum to each other rank; ring: 2 (N - 1) messages of n / N; doubling: a message of n in"
        " each of log2 N rounds.",
    ),
    prediction("prediction_ring", 64, 1e9, "the messages have 64 bytes to 4 MB; write a number of bytes"),
    function(
        "alpha_beta",
        "latency and bandwidth",
        "Two equations, seconds = alpha + size / beta: their difference has no alpha in it.",
    ),
    function(
        "ring_wins_from",
        "where the two algorithms take the same time",
        "2 (N - 1) (alpha + n / N / beta) = log2 N (alpha + n / beta): bring all n to one side.",
    ),
    prediction("prediction_bucket", 1, 1800, "write a size in KB; all gradients together have 1,800"),
)
METHODS = (
    function("hook_bytes", "the bytes of one step", "A float32 has 4 bytes, a float16 has 2; 8 signs are a byte."),
    order("prediction_order", "plain", "float16", "1-bit", "top-1-percent", "double-buffering"),
    prediction("prediction_sooner", 0.1, 100, "1 means as soon as plain, 2 in half of its seconds"),
    function(
        "block_bytes",
        "the bytes of local SGD",
        "steps // period blocks end; each sends 2 (N - 1) / N of the parameters' 4 bytes.",
    ),
    prediction("prediction_period", 1, 36, "H is a whole number of steps, from 1 to 36", whole=True),
    prediction("prediction_staleness", 0, 100, "write a number of steps, 0 or more"),
    prediction("prediction_blocks", 0.1, 1000, "1 means as many images per second as with all bits"),
    function(
        "lost_share",
        "the share of the time that is lost",
        "A checkpoint in each interval; after a failure, half an interval is done again.",
    ),
    order("prediction_last", "1-bit", "local-sgd-4", "block-momentum-4", "asynchronous"),
)
