"""The checks of the gaps in notebook 04_profiling: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import choice, function, prediction

PROFILES = "grader.units.profiling.probes.probe_profiling_notebook"
SLOW_LOADING, UNEVEN_WORK, WAITING = (
    {"before": f"{PROFILES}:{script}"} for script in ("slow_loading", "uneven_work", "waiting_every_step")
)

CHECKS = (
    function(
        "who_waits",
        "`who_waits` names the rank that waits most, and the rank that it waits for",
        "`sum(waits[rank].values())` is the total waiting time of a rank.",
    ),
    function(
        "waiting_share",
        "`waiting_share` is the share of communication that is waiting",
        "For each all-reduce, `begin.max(axis=1, keepdims=True)` is the time at which the last rank entered it.",
    ),
    function(
        "overlap",
        "`overlap` is the share of communication that computation hides",
        "Two spans overlap from the later begin to the earlier end.",
    ),
    choice(
        "bottleneck",
        "`bottleneck` names the part that slows slow_loading.py down",
        "The columns of the table are the parts of a step.",
        of="word",
        before=SLOW_LOADING,
    ),
    prediction(
        "prediction_faster",
        1,
        20,
        (
            "a step without this part is not slower than before, and the other parts remain, so it cannot be that many"
            " times as fast"
        ),
        before=SLOW_LOADING,
    ),
    choice(
        "slow_rank",
        "`slow_rank` is the rank with too much work",
        "The other ranks wait for the rank that never waits.",
        before=UNEVEN_WORK,
    ),
    choice(
        "collectives",
        "`collectives` counts the collective calls of a step",
        "`profiled_runs.collectives(before)` lists the name of each collective and its calls per step.",
        before=WAITING,
    ),
)
