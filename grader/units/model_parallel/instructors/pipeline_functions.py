"""The answers to the notebook's gaps on pipelines: inputs, what is right, and typical mistakes."""

from grader.instructors.notebook_answers import Function


def _held(schedule, stage, stages, micro_batches, activations):
    return (micro_batches if schedule == "gpipe" else min(stages - stage, micro_batches)) * activations


def _held_but(**wrong):
    """held_bytes with another number of micro-batches for one schedule: "gpipe", or "one" for 1F1B."""

    def mistaken(schedule, stage, stages, micro_batches, activations):
        held = wrong.get("gpipe" if schedule == "gpipe" else "one")
        return (
            held(stage, stages, micro_batches) * activations
            if held
            else _held(schedule, stage, stages, micro_batches, activations)
        )

    return mistaken


def _stages(chance):
    """In turns, the first stage of a pipeline, the last one, and one before the middle, where no two mistakes hold as
    many; with more micro-batches than stages, with fewer, or with fewer than follow the stage."""
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
                "that is the bubble as a share of the time in which a stage works; the whole time has the bubble in"
                " it, too"
            ): lambda stages, micro_batches: (stages - 1) / micro_batches,
            "that is the share of the time in which a stage works; the bubble is the rest": (
                lambda stages, micro_batches: micro_batches / (micro_batches + stages - 1)
            ),
            "that is in per cent; return a share, from 0 to 1": lambda stages, micro_batches: (
                100 * (stages - 1) / (micro_batches + stages - 1)
            ),
            "one stage has no bubble: p stages wait for p - 1 others": lambda stages, micro_batches: (
                stages / (micro_batches + stages)
            ),
            "the step takes m + p - 1 micro-batches, not m + p": lambda stages, micro_batches: (
                (stages - 1) / (micro_batches + stages)
            ),
            "p is the number of stages, and m that of micro-batches: you have them the other way round": (
                lambda stages, micro_batches: (micro_batches - 1) / (micro_batches + stages - 1)
            ),
            (
                "forward and backward have their bubble each, and their work each: the share stays the same"
            ): lambda stages, micro_batches: 2 * (stages - 1) / (micro_batches + stages - 1),
        },
    ),
    "held_bytes": Function(
        _stages,
        _held,
        {
            (
                "GPipe does all forwards before the first backward: it holds all micro-batches (its name here is"
                ' "gpipe")'
            ): _held_but(gpipe=lambda stage, stages, m: min(stages - stage, m)),
            (
                "1F1B begins with backwards before the last forward: it does not hold all micro-batches (its name"
                ' here is "1f1b")'
            ): _held_but(one=lambda stage, stages, m: m),
            "with 1F1B, the warm-up holds one for each stage that follows, and then one more for its own forward": (
                _held_but(one=lambda stage, stages, m: min(stages - 1 - stage, m))
            ),
            "with 1F1B, the stages before this one hold more, and the ones after it less: it depends on `stage`": (
                _held_but(one=lambda stage, stages, m: min(stages, m))
            ),
            "with 1F1B, stage 0 holds most, and the last stage only one micro-batch": _held_but(
                one=lambda stage, stages, m: min(stage + 1, m)
            ),
            "a stage cannot hold more micro-batches than there are": _held_but(
                one=lambda stage, stages, m: stages - stage
            ),
            (
                "that is one micro-batch; count how many are held at once"
            ): lambda schedule, stage, stages, micro_batches, activations: activations,
        },
        number=8,
    ),
}
