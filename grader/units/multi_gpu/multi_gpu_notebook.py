"""The checks of the gaps in notebook 02_multi_gpu: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

CHECKS = (
    function("speed_up", "how many times as fast", "A speed-up of 2 is twice the throughput.", points=1),
    function("efficiency", "the part of the ideal speed-up", "The ideal speed-up of N workers is N."),
    function(
        "waiting",
        "the mean wait of each rank",
        "arrivals.max(axis=1, keepdims=True) is when the last rank came, for each step.",
    ),
    function(
        "updates",
        "updates in all epochs",
        "An update takes batchsize * workers images; math.ceil rounds up.",
        whole="a list can't be repeated 12.0 times",
    ),
    prediction(
        "prediction_error",
        1,
        100,
        "write percent, 0 or a number from 1 to 100: a quarter is 25; one worker misreads 9, and guessing one of ten"
        " digits misreads 90",
        also=(0,),
    ),
    function(
        "learning_rate", "linear scaling with a warm-up", "min(1, update / warmup) is how far the warm-up has come."
    ),
)
