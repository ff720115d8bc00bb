"""The checks of the gap in notebook 10_challenge: title, hint and points, and no answer."""

from grader.checks.notebook_functions import function

CHECKS = (
    function(
        "training_seconds",
        "`training_seconds` is the time of a training run",
        "Add the computing time of all steps to the time of all exchanges. An exchange sends 2 (N - 1) messages of"
        " size / N bytes, one after the other.",
    ),
)
