"""The checks of pipeline schedules. They judge a schedule by its simulated timeline, so any order with an equally good
timeline passes."""

import contextlib

from grader.checks.check import Check, Criterion
from grader.checks.notebook_functions import function, prediction
from handson.pipelines import ScheduleError, beyond_problem, divided_problem, simulate
from handson.words import enough

PROBES = "grader.units.model_parallel.probes.probe_schedules"


def _size(stages, micro_batches):
    return f"{stages} stage{'s' * (stages > 1)} and {micro_batches} micro-batch{'es' * (micro_batches > 1)}"


def _timelines(seen, case):
    """Yield (stages, micro-batches, Timeline) of each size of a case whose schedule can be executed. Forged schedules
    with thousands of micro-batches would take minutes, so they are left out."""
    for (stages, micro_batches), schedule in zip(case["sizes"], seen[0]["schedules"]):
        if len(schedule) == stages and not beyond_problem(schedule, micro_batches):
            with contextlib.suppress(ScheduleError):
                yield stages, micro_batches, simulate(schedule)


def can_be_done(seen, case, expected):
    """Judge that each stage runs a forward and a backward of each micro-batch, and no two stages wait for each
    other."""
    for (stages, micro_batches), schedule in zip(case["sizes"], seen[0]["schedules"]):
        where = f"with {_size(stages, micro_batches)}"
        if len(schedule) != stages:
            return f"your schedule has {len(schedule)} stage{'s' * (len(schedule) != 1)}, but it should have {stages}"
        if problem := beyond_problem(schedule, micro_batches):
            return f"{where}, {problem}"
        try:
            simulate(schedule)
        except ScheduleError as error:
            return f"{where}, {error}"
        # each stage has the same micro-batches: `simulate` refuses others
        present = {name[1:].split(".")[0] for name in schedule[0]}
        if missing := [number for number in range(micro_batches) if str(number) not in present]:
            return f"{where}, B{missing[0]} is missing: micro-batches are numbered from 0 to {micro_batches - 1}"
    return None


def can_be_executed(seen, case, expected):
    """Judge that pipeline.py can execute the schedule of schedules.py."""
    for (stages, micro_batches), schedule in zip(case["sizes"], seen[0]["schedules"]):
        if problem := divided_problem(schedule):
            return f"with {_size(stages, micro_batches)}, {problem}"
    return can_be_done(seen, case, expected)


def no_idle_time_but_the_bubble(seen, case, expected):
    for stages, micro_batches, timeline in _timelines(seen, case):
        least = 3 * (micro_batches + stages - 1)
        if timeline.end > least + 1e-9:
            why = _idle_for_nothing(timeline, micro_batches) or "a stage waits longer than the bubble"
            return (
                f"with {_size(stages, micro_batches)}, the step takes the time of {timeline.end:g} forwards (a backward"
                f" takes 2), but {enough(least)}: {why}"
            )
    return None


def _idle_for_nothing(timeline, micro_batches):
    """Return which stage waits to start an operation although it could run a later one without holding more than it
    has to, as a part of a sentence; or ""."""
    if divided_problem(timeline.schedule):
        return ""
    of, stages = {(one.stage, one.name): one for one in timeline.operations}, len(timeline.schedule)
    for stage, names in enumerate(timeline.schedule):
        free, held = 0.0, set()
        for place, name in enumerate(names):
            for other in names[place + 1 :]:
                needed = of.get((stage + (-1 if other[0] == "F" else 1), other))  # none at the ends of the pipeline
                ready = max(free, needed.end if needed else 0.0) < of[stage, name].begin - 1e-9
                if ready and (len(held) < min(stages - stage, micro_batches) if other[0] == "F" else other[1:] in held):
                    return f"stage {stage} waits to start {name}, but it could run {other} at that time"
            held ^= {name[1:]}  # added by its forward, removed by its backward
            free = of[stage, name].end
    return ""


def forwards_first(seen, case, expected):
    for (stages, micro_batches), schedule in zip(case["sizes"], seen[0]["schedules"]):
        for stage, names in enumerate(schedule):
            kinds = "".join(name[:1] for name in names)
            if "BF" in kinds:
                return (
                    f"with {_size(stages, micro_batches)}, stage {stage} runs {names[kinds.index('BF')]} before"
                    f" {names[kinds.index('BF') + 1]}, but in GPipe, all forwards run first"
                )
    return None


def other_than_gpipe(seen, case, expected):
    """Judge that the schedule 1F1B is not GPipe. With few micro-batches, a warm-up that is one too long looks like
    GPipe, so these sizes are skipped."""
    for stages, micro_batches, timeline in _timelines(seen, case):
        if timeline.held[0] == micro_batches > stages + 1:
            return (
                f"with {_size(stages, micro_batches)}, stage 0 runs all forwards first, as in GPipe; in 1F1B, a"
                " backward follows each forward after the warm-up"
            )
    return None


def few_are_held(seen, case, expected):
    together = [
        timeline.end < 3 * stages * micro_batches - 1e-9
        for stages, micro_batches, timeline in _timelines(seen, case)
        if min(stages, micro_batches) > 1
    ]
    if together and not any(together):
        return (
            "no two stages work at the same time, so this schedule is not a pipeline: a stage should start the next"
            " micro-batch while other stages work"
        )
    for stages, micro_batches, timeline in _timelines(seen, case):
        for stage, most in enumerate(timeline.held):
            if most > (needed := min(stages - stage, micro_batches)):
                where = f"with {_size(stages, micro_batches)}, stage {stage}"
                return (
                    f"{where} holds the activations of {most} micro-batches at once, but {enough(needed)}: one for"
                    " itself and one for each stage after it"
                )
    return None


def _schedules(case):
    return {"schedules": [[[str]]]}


DONE, BUBBLE = "the schedule can be executed", "stages are idle only in the bubble"
SIZES = [[2, 3], [3, 5], [4, 4], [4, 2], [1, 2]]  # stages and micro-batches
CHECKS = {
    "pytorch/schedules.py": (
        Check(
            "gpipe",
            f"{PROBES}:schedule",
            ({"sizes": SIZES},),
            (
                Criterion(
                    "valid_schedule", DONE, 1, can_be_executed, "Each stage runs F and B of each micro-batch once."
                ),
                Criterion(
                    "all_forwards_then_all_backwards",
                    "each stage runs all forwards, then all backwards",
                    1,
                    forwards_first,
                    "List all F, then all B.",
                    needs="valid_schedule",
                ),
                Criterion(
                    "only_the_bubble",
                    BUBBLE,
                    1,
                    no_idle_time_but_the_bubble,
                    "All stages run the micro-batches in the same order.",
                    needs="valid_schedule",
                ),
            ),
            observed=_schedules,
        ),
        Check(
            "one_forward_one_backward",
            f"{PROBES}:schedule",
            ({"sizes": SIZES},),
            (
                Criterion(
                    "valid_schedule",
                    DONE,
                    2,
                    can_be_executed,
                    "Each stage runs F and B of each micro-batch once; the last stage has no warm-up.",
                ),
                Criterion(
                    "only_the_bubble",
                    BUBBLE,
                    2,
                    lambda *all: other_than_gpipe(*all) or no_idle_time_but_the_bubble(*all),
                    "The warm-up has stages - 1 - stage forwards: one for each stage after this stage.",
                    needs="valid_schedule",
                ),
                Criterion(
                    "few_activations_held",
                    "stages hold as few activations as possible",
                    2,
                    few_are_held,
                    "After the warm-up, a backward follows each forward.",
                    needs="valid_schedule",
                ),
            ),
            observed=_schedules,
        ),
    )
}
NOTEBOOK = (
    Check(
        "by_hand",
        "grader.units.model_parallel.probes.probe_model_parallel_notebook:puzzle",
        ({"name": "by_hand", "sizes": [[3, 4]]},),
        (
            Criterion(
                "valid_schedule",
                DONE,
                1,
                can_be_done,
                "Draw your schedule: the picture shows which stage waits for which operation.",
            ),
            Criterion(
                "only_the_bubble",
                BUBBLE,
                1,
                no_idle_time_but_the_bubble,
                "A stage should not be idle while it could run a forward or a backward.",
                needs="valid_schedule",
            ),
            Criterion(
                "few_activations_held",
                "stages hold as few activations as possible",
                1,
                few_are_held,
                "Run each backward as early as possible, then a new forward.",
                needs="valid_schedule",
            ),
        ),
        observed=_schedules,
    ),
    function(
        "bubble",
        "`bubble` is the bubble's share of the time",
        "A step takes the time of m + p - 1 micro-batches, and a stage computes for m of them.",
        uses=["handson.pipelines"],
    ),
    prediction(
        "prediction_pipeline",
        0.2,
        2,
        "1 means the throughput of one process; two stages cannot be more than twice as fast",
    ),
    function(
        "held_bytes",
        "`held_bytes` is the memory of the activations that a stage holds",
        "With GPipe, a stage holds all micro-batches; with 1F1B, stage s of p holds p - s of them.",
        uses=["handson.pipelines"],
    ),
)
