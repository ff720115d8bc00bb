"""The checks of the gaps in notebook 07_frameworks: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

CHECKS = (
    prediction("prediction_speedup", 0.1, 2.5, "two workers are at most about twice as fast as one; write a speed-up"),
    function(
        "weights_of_fit",
        "the weight of an image under fit",
        "A mean over the replicas of means over their images: 1 / len(parts), times 1 / images.",
    ),
    function(
        "seconds_in_python",
        "the seconds of a step in Python",
        "Go through the operations in the order of their begin; of each, count what comes after the end of all before"
        " it. Subtract that from the step.",
    ),
    function(
        "threads_speedup",
        "the speed-up of threads at best",
        "The Python of all threads runs one after the other; one replica's step takes python + kernels. The longer of"
        " the two is the time.",
    ),
)
