"""The checks of the gaps in notebook 03_multi_node: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

CHECKS = (
    function(
        "intra_rank",
        "`intra_rank` is the rank's number on its node",
        "With two ranks per node, ranks 0, 1, 2, 3 have the intra_ranks 0, 1, 0, 1.",
        points=1,
    ),
    function(
        "total_accuracy",
        "`total_accuracy` is the accuracy on the whole test set",
        "Add up the correct images of all ranks, and all their images.",
    ),
    prediction(
        "prediction_efficiency",
        0.02,
        1.2,
        "an efficiency is about 1 at best, and 0.25 if four workers are only as fast as one",
    ),
    function(
        "scaling",
        "`scaling` has throughput, speed-up and efficiency in each row",
        "The speed-up is relative to `throughputs[1]`. The efficiency is the speed-up divided by the workers.",
    ),
    function(
        "most_workers",
        "`most_workers` is the largest number of workers that is efficient enough",
        "Each row is [workers, images/s, speed-up, efficiency].",
    ),
    function(
        "allreduce_seconds",
        ("`allreduce_seconds` is the transfer time of all bytes"),
        "bits = 8 * 4 * parameters * 2 * (workers - 1) / workers",
    ),
)
