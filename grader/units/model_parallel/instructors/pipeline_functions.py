"""The answers to the notebook's gaps on pipelines: inputs, right values, and typical mistakes."""

from grader.instructors.notebook_answers import Function


def _held(schedule, stage, stages, micro_batches, activations):
    return (micro_batches if schedule == "gpipe" else min(stages - stage, micro_batches)) * activations


def _held_but(**wrong):
    """Return held_bytes with a wrong number of micro-batches for one schedule: "gpipe", or "one" for 1F1B."""

    def mistaken(schedule, stage, stages, micro_batches, activations):
        held = wrong.get("gpipe" if schedule == "gpipe" else "one")
        return (
            held(stage, stages, micro_batches) * activations
            if held
            else _held(schedule, stage, stages, micro_batches, activations)
        )

    return mistaken


def _stages(chance):
    """Return a stage of a pipeline: in turns the first, the last, and one before the middle, where any two mistakes
    hold different numbers of micro-batches. There are more micro-batches than stages, fewer, or fewer than stages
    after this one."""
    stages = chance.randint(7, 10)
    first, last, inner, many, few = (
        0,
        stages - 1,
        chance.randint(1, 2),
        chance.randint(stages + 1, 30),
        chance.randint(3, 4),
    )
    schedule, stage, micro_batches = chance.turn(
        [
            ("1f1b", first, many),
            ("gpipe", first, many),
            ("1f1b", last, 3),
            ("1f1b", inner, many),
            ("gpipe", last, few),
            ("1f1b", inner, few),
            ("1f1b", first, few),
            ("gpipe", inner, few),
        ]
    )
    return {
        "schedule": schedule,
        "stage": stage,
        "stages": stages,
        "micro_batches": micro_batches,
        "activations": 1000.0 * chance.randint(1, 999),
    }


ANSWERS = {
    "bubble": Function(
        lambda chance: {
            "stages": chance.randint(4, 16),
            "micro_batches": chance.turn([chance.randint(2, 3), chance.randint(17, 64)]),
        },
        lambda stages, micro_batches: (stages - 1) / (micro_batches + stages - 1),
        {
            (
                "your result is the bubble as a share of the time in which a stage computes: divide by the whole time,"
                " which includes the bubble"
            ): lambda stages, micro_batches: (stages - 1) / micro_batches,
            "your result is the share of the time in which a stage computes: the bubble is 1 minus this share": (
                lambda stages, micro_batches: micro_batches / (micro_batches + stages - 1)
            ),
            "your result is a percentage: return a share from 0 to 1": lambda stages, micro_batches: (
                100 * (stages - 1) / (micro_batches + stages - 1)
            ),
            "your result is not 0 for one stage: p stages wait for p - 1 other stages": lambda stages, micro_batches: (
                stages / (micro_batches + stages)
            ),
            "your result has a step of m + p micro-batches, but it takes m + p - 1": lambda stages, micro_batches: (
                (stages - 1) / (micro_batches + stages)
            ),
            "your result exchanges p and m: p is the number of stages, and m is the number of micro-batches": (
                lambda stages, micro_batches: (micro_batches - 1) / (micro_batches + stages - 1)
            ),
            (
                "your result counts the bubble twice: forward and backward both have a bubble and both compute, so the"
                " share stays the same"
            ): lambda stages, micro_batches: 2 * (stages - 1) / (micro_batches + stages - 1),
        },
    ),
    "held_bytes": Function(
        _stages,
        _held,
        {
            (
                "GPipe runs all forwards before the first backward, so a stage holds all micro-batches (the argument is"
                ' "gpipe")'
            ): _held_but(gpipe=lambda stage, stages, m: min(stages - stage, m)),
            (
                "1F1B starts backwards before the last forward, so a stage does not hold all micro-batches (the"
                ' argument is "1f1b")'
            ): _held_but(one=lambda stage, stages, m: m),
            "with 1F1B, a stage holds one micro-batch for each stage after it, and one more for itself": (
                _held_but(one=lambda stage, stages, m: min(stages - 1 - stage, m))
            ),
            "with 1F1B, earlier stages hold more micro-batches than later stages: use `stage`": (
                _held_but(one=lambda stage, stages, m: min(stages, m))
            ),
            "with 1F1B, stage 0 holds most micro-batches, and the last stage holds only one": _held_but(
                one=lambda stage, stages, m: min(stage + 1, m)
            ),
            "your result exceeds the number of micro-batches, but a stage cannot hold more than that": _held_but(
                one=lambda stage, stages, m: stages - stage
            ),
            (
                "your result is for one micro-batch: multiply by the number of micro-batches held at once"
            ): lambda schedule, stage, stages, micro_batches, activations: activations,
        },
        number=8,
    ),
}
