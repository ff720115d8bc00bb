"""The checks of the gaps in notebook 04_profiling: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import choice, function, prediction

PROFILES = "grader.units.profiling.probes.probe_profiling_notebook"
SLOW_LOADING, UNEVEN_WORK, WAITING = (
    {"before": f"{PROFILES}:{script}"} for script in ("slow_loading", "uneven_work", "waiting_every_step")
)

CHECKS = (
    function(
        "who_waits",
        "the rank that waits most, and for whom",
        "sum(waits[rank].values()) is how long a rank waits in all.",
    ),
    function(
        "waiting_share",
        "the part of communication that is waiting",
        "begin.max(axis=1, keepdims=True) is when the last rank came to each all-reduce.",
    ),
    function(
        "overlap",
        "the part of communication that is hidden",
        "Two spans have in common what lies between the later begin and the earlier end.",
    ),
    choice(
        "bottleneck",
        "what slows down slow_loading.py",
        "The columns of the table are the parts of a step.",
        of="word",
        before=SLOW_LOADING,
    ),
    prediction(
        "prediction_faster",
        1,
        20,
        "a step can't become slower by leaving something out, and it can't become that much faster if other parts stay",
        before=SLOW_LOADING,
    ),
    choice(
        "slow_rank",
        "the rank with too much work",
        "The rank that never waits is the one that is waited for.",
        before=UNEVEN_WORK,
    ),
    choice(
        "collectives",
        "how often the ranks meet",
        "profiled_runs.collectives(before) lists them: the name, and the calls in a step.",
        before=WAITING,
    ),
)
