"""The checks of the gaps in notebook 03_multi_node: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

CHECKS = (
    function(
        "intra_rank",
        "the number on the node",
        "With two ranks a node, ranks 0, 1, 2, 3 have the intra_ranks 0, 1, 0, 1.",
        points=1,
    ),
    function(
        "total_accuracy",
        "the accuracy on the whole test set",
        "Add up what is correct on all ranks, and the images of all ranks.",
    ),
    prediction(
        "prediction_efficiency",
        0.02,
        1.2,
        "an efficiency is about 1 at best, and 0.25 if four workers are as fast as one",
    ),
    function(
        "scaling",
        "throughput, speed-up and efficiency of each row",
        "The speed-up is against throughputs[1]; the efficiency is the speed-up divided by the workers.",
    ),
    function(
        "most_workers",
        "the most workers that are efficient enough",
        "Each row is [workers, images/s, speed-up, efficiency].",
    ),
    function(
        "allreduce_seconds", "the time that the bytes take", "bits = 8 * 4 * parameters * 2 * (workers - 1) / workers"
    ),
)
