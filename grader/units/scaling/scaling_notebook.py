"""The checks of the gaps in notebook 08_scaling: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

MEASURED = {
    name: f"grader.units.scaling.probes.probe_scaling_notebook:{name}" for name in ("single", "two", "four", "rate")
}

CHECKS = (
    function(
        "amdahl", "the speed-up for the same work", "N workers take serial + (1 - serial) / N of the time of one."
    ),
    function(
        "gustafson",
        "the speed-up for more work",
        "In the time of N workers, the divided part is worth N times its time; the serial part is not.",
    ),
    function(
        "slowest",
        "the slowest of N",
        "Sort the steps first. The k-th of n is the slowest with the probability (k/n)^N - ((k-1)/n)^N.",
    ),
    function(
        "tree",
        "the seconds of a tree",
        "log2 N rounds up, rounded up to a whole number, and as many down; each takes alpha + size / beta.",
    ),
    function(
        "step_time", "the time of a step", "What goes on at the same time does not add up: the longer one counts."
    ),
    prediction(
        "prediction_16", 1, 1e5, "a step of 16 workers takes some tens or hundreds of milliseconds", before=MEASURED
    ),
    function(
        "cloud_step",
        "an iteration in the cloud",
        "Loading goes on beside the rest; with double buffering, so does the network.",
        points=3,
    ),
    function(
        "order",
        "the machines to order",
        "Of all numbers of nodes that the budget allows and the list of the offer has, the one with the most images/s.",
        points=3,
        whole="the notebook looks up the offer and its images/s with them",
    ),
)
