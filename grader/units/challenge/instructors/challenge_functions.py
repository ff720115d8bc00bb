"""The answer to the gap in notebook 10_challenge: inputs, what is right, and typical mistakes."""

from grader.instructors.notebook_answers import Function


def _inputs(chance):
    steps = chance.randint(50, 400)
    return {
        "steps": steps,
        "compute": chance.uniform(0.01, 0.2),
        "exchanges": steps // chance.turn([2, 5, 10]),
        "size": chance.uniform(1e5, 1e6),
        "ranks": chance.randint(3, 8),
        "rate": chance.uniform(1e6, 1e7),
    }


def _seconds(steps, compute, exchanges, size, ranks, rate):
    return steps * compute + exchanges * 2 * (ranks - 1) / ranks * size / rate


ANSWERS = {
    "training_seconds": Function(
        _inputs,
        _seconds,
        {
            (
                "`training_seconds` counts one message of all bytes per all-reduce: it has 2 (N - 1) messages of size"
                " / N"
            ): (lambda steps, compute, exchanges, size, ranks, rate: steps * compute + exchanges * size / rate),
            "`training_seconds` counts an all-reduce in every step, but there are only `exchanges` all-reduces": (
                lambda steps, compute, exchanges, size, ranks, rate: _seconds(steps, compute, steps, size, ranks, rate)
            ),
        },
    )
}
