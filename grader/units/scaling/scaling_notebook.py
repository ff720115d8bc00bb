"""The checks of the gaps in notebook 08_scaling: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

MEASURED = {
    name: f"grader.units.scaling.probes.probe_scaling_notebook:{name}" for name in ("single", "two", "four", "rate")
}

CHECKS = (
    function(
        "amdahl",
        ("`amdahl` is the speed-up for the same work"),
        "N workers need serial + (1 - serial) / N of the time of one.",
    ),
    function(
        "gustafson",
        "`gustafson` is the speed-up for more work",
        "One worker needs N times as long for the divided part, and the same time for the serial part.",
    ),
    function(
        "slowest",
        "`slowest` is the expected slowest step of N workers",
        "Sort the steps first. The k-th of n steps is the slowest with probability (k/n)^N - ((k-1)/n)^N.",
    ),
    function(
        "tree",
        "`tree` is the time of a tree all-reduce",
        (
            "The sum reaches one rank in log2 N rounds, rounded up to a whole number, and the others in as many. Each"
            " round takes alpha + size / beta."
        ),
    ),
    function(
        "step_time",
        ("`step_time` is the time of a step"),
        "Parts that run at the same time do not add up: the longer one counts.",
    ),
    prediction(
        "prediction_16", 1, 1e5, "a step of 16 workers takes some tens or hundreds of milliseconds", before=MEASURED
    ),
    function(
        "cloud_step",
        "`cloud_step` is the time of an iteration in the cloud",
        "Loading runs at the same time as the rest. With double buffering, so does the network.",
        points=3,
    ),
    function(
        "order",
        "`order` gives the most images/s for the budget",
        (
            "Compare all numbers of nodes that the budget allows and that the offer lists. Take the one with the most"
            " images/s."
        ),
        points=3,
        whole="the notebook uses them to look up the offer and its images/s",
    ),
)
