"""The checks of the gap in notebook 10_challenge: title, hint and points, and no answer."""

from grader.checks.notebook_functions import function

CHECKS = (
    function(
        "training_seconds",
        "the seconds of a training",
        "All steps compute; each exchange takes 2 (N - 1) messages of size / N bytes.",
    ),
)
