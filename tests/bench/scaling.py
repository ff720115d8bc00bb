"""Throughput of several workers against the limit, as many independent runs at the same time; and the speed of what
predicts more workers."""

import statistics

from tests.bench import predictions
from tests.bench.runs import finish, rate, start

ROUNDS = 3
LECTURE = "lecture: {}"


def measure(folder, track="pytorch"):
    """Rows (what, value, target). Limit and workers take turns, so that both see the same machine."""
    limits, twos, fours, singles, whole = [], [], [], [], []
    for turn in range(ROUNDS):
        at = folder / f"{track}_{turn}"
        singles += finish(start("single_gpu", at / "one", "-g", "0", track=track))
        limits.append(
            finish(
                start("single_gpu", at / "a", "-g", "0", track=track),
                start("single_gpu", at / "b", "-g", "1", track=track),
            )
        )
        twos += finish(start("multi_gpu", at / "two", track=track))
        fours += finish(start("multi_node", at / "four", track=track, launcher=["mpiexec", "-n", "4"]))
    limit = [sum(rate(run) for run in pair) for pair in limits]
    whole = [sum(run.throughput for run in pair) for pair in limits]

    def median(values):
        return statistics.median(values)

    one, two, four = (median([run.throughput for run in runs]) for runs in (singles, twos, fours))
    return [
        ("images/s of 1 worker", f"{one:.1f}", LECTURE.format("51.1")),
        ("images/s of 2 workers on 1 node", f"{two:.1f}", LECTURE.format("87.6")),
        ("images/s of 4 workers on 2 nodes (here: 2 cores)", f"{four:.1f}", LECTURE.format("172.1")),
        ("speed-up of 2 workers", f"{two / one:.2f}", LECTURE.format("1.71")),
        ("speed-up of 4 workers on 2 nodes", f"{four / one:.2f}", LECTURE.format("3.37, on 4 GPUs")),
        (
            "2 workers / 2 independent runs, training iterations",
            f"{median([rate(t) / l for t, l in zip(twos, limit)]):.3f}",
            "at least 0.90",
        ),
        (
            "2 workers / 2 independent runs, with evaluation on main",
            f"{median([t.throughput / l for t, l in zip(twos, whole)]):.3f}",
            "",
        ),
        *(predictions.quick(folder) if track == "pytorch" else ()),
    ]
