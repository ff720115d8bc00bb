"""The checks of the gaps in notebook 02_multi_gpu: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

CHECKS = (
    function(
        "speed_up",
        ("`speed_up` is the ratio of the throughputs"),
        "A speed-up of 2 means twice the throughput.",
        points=1,
    ),
    function("efficiency", "`efficiency` is the share of the ideal speed-up", "The ideal speed-up of N workers is N."),
    function(
        "waiting",
        "`waiting` is the mean waiting time of each rank",
        "For each step, `arrivals.max(axis=1, keepdims=True)` is the time at which the last rank arrived.",
    ),
    function(
        "updates",
        "`updates` counts the updates of all epochs",
        "An update uses batchsize * workers images. `math.ceil` rounds up.",
        whole="a list cannot be repeated 12.0 times",
    ),
    prediction(
        "prediction_error",
        1,
        100,
        "write it in percent, as 0 or a number from 1 to 100 (a quarter is 25): one worker misclassifies 9 %, and a"
        " network that guesses misclassifies 90 %",
        also=(0,),
    ),
    function(
        "learning_rate",
        ("`learning_rate` scales linearly after a warm-up"),
        "`min(1, update / warmup)` is the progress of the warm-up, from 0 to 1.",
    ),
)
