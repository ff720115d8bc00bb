"""The checks of the gaps in notebook 00_start: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

CHECKS = (
    function(
        "workers",
        "`workers` counts the processes on all nodes",
        "`mpiprocs` is the number of processes on each node.",
        points=1,
    ),
    prediction(
        "prediction",
        0.25,
        2.5,
        "two workers are at worst a little slower than one worker, and at best about twice as fast",
    ),
)
