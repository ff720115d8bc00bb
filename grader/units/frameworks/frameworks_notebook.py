"""The checks of the gaps in notebook 07_frameworks: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

CHECKS = (
    prediction("prediction_speedup", 0.1, 2.5, "two workers are at most about twice as fast as one; write a speed-up"),
    function(
        "weights_of_fit",
        "`weights_of_fit` is the weight of one image of each replica",
        "fit averages the replicas' averages: an image's weight is 1 / len(parts) times 1 / images of its replica.",
    ),
    function(
        "seconds_in_python",
        "`seconds_in_python` is the time of a step outside all operations",
        "Go through the operations in the order of their begin. For each, count only the time after the latest end so"
        " far. Subtract the sum from the step.",
    ),
    function(
        "threads_speedup",
        "`threads_speedup` is the best possible speed-up of threads",
        "The Python parts of all threads run one after the other, and the step of a replica takes python + kernels. The"
        " longer of these two times is the time of the step.",
    ),
)
