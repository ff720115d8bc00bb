"""The checks of the gaps in notebook 01_single_gpu: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

CHECKS = (
    function(
        "throughput",
        "`throughput` is images per second over all steps",
        "Images: batch size times the number of steps. Seconds: the sum of all steps.",
    ),
    prediction(
        "prediction_backward",
        0.25,
        8,
        "forward and backward do similar work, so the ratio of their times is closer to 1",
    ),
    function(
        "smallest_batch",
        "`smallest_batch` is the smallest batch size that is fast enough",
        "`max(rates.values())` is the best throughput. `rates.items()` gives pairs of batch size and throughput.",
    ),
    function(
        "limit",
        "`limit` is the largest possible speed-up of the epoch",
        "`sum(seconds.values())` is the time of the epoch. Without the part, the epoch is shorter by `seconds[part]`.",
    ),
)
