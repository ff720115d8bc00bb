"""The checks of the gaps in the notebooks 05_communication and 05b_communication: titles, hints and points, but no
answers."""

import re

from grader.checks.check import Check, Criterion
from grader.checks.notebook_functions import PROBES, function, prediction


def each_once(seen, case, expected):
    """Judge that the text names each of case["methods"] once, in any order. Numbers and separators are ignored."""
    words, methods = re.findall(r"\w+(?:-\w+)*", seen[0]["value"].lower()), case["methods"]
    # first: a method may be missing because its name is misspelt
    if other := [word for word in words if word not in methods and not word.isdigit()]:
        return f"`{case['name']}` names {other[0]!r:.40}, which is not a method here: order {', '.join(methods)}"
    wrong = [method for method in methods if words.count(method) != 1]
    if not wrong:
        return None
    count = words.count(wrong[0])
    if not count:
        return f"`{case['name']}` lacks {wrong[0]}: name each of {', '.join(methods)} once"
    return f"`{case['name']}` names {wrong[0]} {count} times: name each of {', '.join(methods)} once"


def order(gap, *methods):
    """Return the check of a prediction: the order in which methods reach an accuracy."""
    hint = "Write the names with spaces between them. The order need not come true."
    criterion = Criterion("prediction", "the prediction names each method once", 1, each_once, hint)
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
        "`bytes_sent` is the number of bytes that the busiest rank sends",
        "naive: rank 0 sends the sum to each other rank. ring: 2 (N - 1) messages of n / N bytes. doubling: one message"
        " of n bytes in each of log2 N rounds.",
    ),
    prediction("prediction_ring", 64, 1e9, "write a number of bytes; the messages have 64 bytes to 4 MB"),
    function(
        "alpha_beta",
        "`alpha_beta` gives latency and bandwidth",
        "Write seconds = alpha + size / beta for two messages. The difference of the two equations does not contain"
        " alpha.",
    ),
    function(
        "ring_wins_from",
        "`ring_wins_from` is the size at which both algorithms take the same time",
        "Solve 2 (N - 1) (alpha + n / N / beta) = log2 N (alpha + n / beta) for n.",
    ),
    prediction("prediction_bucket", 1, 1800, "write a size in KB; all gradients together have 1,800 KB"),
)
METHODS = (
    function(
        "hook_bytes",
        "`hook_bytes` is the number of bytes that a rank passes on per step",
        "A float32 has 4 bytes, a float16 has 2 bytes, and 8 signs fit into one byte.",
    ),
    order("prediction_order", "plain", "float16", "1-bit", "top-1-percent", "double-buffering"),
    prediction("prediction_sooner", 0.1, 100, "write 1 for the same time as plain, 2 for half of that time"),
    function(
        "block_bytes",
        "`block_bytes` is the number of bytes that a rank sends in local SGD",
        "steps // period blocks end, and each block sends 2 (N - 1) / N times the 4 bytes of each parameter.",
    ),
    prediction("prediction_period", 1, 36, "write a whole number of steps, from 1 to 36", whole=True),
    prediction("prediction_staleness", 0, 100, "write a number of updates, 0 or more"),
    prediction("prediction_blocks", 0.1, 1000, "write 1 for equally many images per second as with 32 bits"),
    function(
        "lost_share",
        "`lost_share` is the share of the time that is lost",
        "Each interval contains one checkpoint. After each failure, half an interval is repeated.",
    ),
    order("prediction_last", "1-bit", "local-sgd-4", "block-momentum-4", "asynchronous"),
)
