"""The checks of the gaps in notebook 01_single_gpu: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

CHECKS = (
    function(
        "throughput",
        "images of all steps per second",
        "Images: batch size times the number of steps. Seconds: the sum of all steps.",
    ),
    prediction(
        "prediction_backward",
        0.25,
        8,
        "a part that takes so much longer, or shorter, is hard to believe of two parts that do much the same",
    ),
    function(
        "smallest_batch",
        "the smallest that is good enough",
        "max(rates.values()) is the best throughput; `rates.items()` gives pairs of batch size and throughput.",
    ),
    function(
        "limit",
        "the epoch now, against the epoch without the part",
        "sum(seconds.values()) is the time of the epoch; without the part, it is shorter by seconds[part].",
    ),
)
