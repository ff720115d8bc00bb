"""How long grading takes, predicted before it starts and measured, for classes of several kinds, on one and two
engines.

All predictions follow from the course's own numbers (seconds.json), as on a machine that has not graded anything; the
last one from the gradings before. The clock depends on the other programs of a machine, so CPU seconds are compared as
well: these were predicted before, too. A prediction with the slowdown that the grading then had shows what is left when
the load is known.
"""

import time

from grader.course import ready
from grader.instructors.grade import estimate, record, remembered
from grader.instructors.grade.grading import grade
from grader.instructors.grading_tour import hand_in as hand_in_tour
from tests.grader.test_placing import Engines, Result, piece

CLUSTERS = (2, 32, 512)


def measure(folder):
    """Rows (what, value, target)."""
    hand_in_tour(folder / "tour")
    record.hand_in(folder / "first", ["single_gpu"], 20)
    record.hand_in(folder / "one", ["single_gpu", "multi_gpu"], 6)
    record.hand_in(folder / "jobs", ready(), 30)
    for path in (folder / "jobs").rglob("*.*"):
        if path.is_file() and path.suffix != ".sh":
            path.unlink()
    cases = (
        ("job scripts of 30 submissions", "jobs", 2, None),
        ("6 submissions of two units", "one", 1, ["single_gpu", "multi_gpu"]),
        ("20 submissions of the first unit", "first", 2, ["single_gpu"]),
        ("the tour's class", "tour", 2, None),
    )
    for number, (what, name, engines, units) in enumerate(cases):
        with record.state_in(folder / f"state{number}"):
            yield from _graded(what, folder / name, folder / f"graded{number}", engines, units)
    with record.state_in(folder / f"state{len(cases) - 1}"):
        yield from _graded("the tour's class again, from its first grading", folder / "tour", folder / "again", 2, None)
    for engines in CLUSTERS:
        yield (
            f"ms of CPU time in which the grader gives a piece to one of {engines} engines",
            f"{1000 * _placing(engines):.2f}",
            "",
        )


def _graded(what, handed_in, out, engines, units):
    heard, estimates = {}, (estimate.in_words, estimate.remember)

    def in_words(jobs, hosts, known, spun):
        heard.update(jobs=jobs, began=time.monotonic(), cpu=estimate.cpu_seconds_of(jobs, known))
        return estimates[0](jobs, hosts, known, spun)

    def remember(took, pieces, of, start, used, spun, spin):
        heard["took"], known = time.monotonic() - heard["began"], remembered.read(spin)
        heard["slowdowns"] = remembered.slowed(spun, known), remembered.slowdown(took, known, spun, of)[0]
        heard["predicted"] = [
            estimate.seconds_of(heard["jobs"], [engines], known, spun, slowdown) for slowdown in heard["slowdowns"]
        ]
        heard["used"] = sum(cost.engine + cost.ranks for some in took.values() for _, _, cost in some)
        estimates[1](took, pieces, of, start, used, spun, spin)

    estimate.in_words, estimate.remember = in_words, remember
    try:
        grade(handed_in, out, engines=engines, units=units, say=lambda line: None)
    finally:
        estimate.in_words, estimate.remember = estimates
    for when, slowdown, predicted in zip(("at its start", "that it had"), heard["slowdowns"], heard["predicted"]):
        words = (
            f"seconds to grade {what}, {len(heard['jobs'])} pieces, {engines} engines, slowdown {slowdown:.1f} {when}"
        )
        yield (
            words,
            f"{heard['took']:.0f}",
            f"predicted {predicted:.0f}, {predicted / heard['took'] - 1:+.0%}; within 20 %",
        )
    yield (
        "  CPU seconds of its pieces",
        f"{heard['used']:.0f}",
        f"predicted {heard['cpu']:.0f}, {heard['cpu'] / heard['used'] - 1:+.0%}",
    )


def _placing(count, pieces=2000):
    """CPU seconds of the Placer for a piece, with engines that are played: each piece ends some turns later."""
    from grader.instructors.grade.placing import Placer

    engines, now = Engines(count), [0]
    engines.hosts = {number: f"host{number // 32}" for number in range(count)}
    engines.submit = lambda engine, function, one, *rest: _Later(engines, engine, one)
    engines.ready = lambda result: now[0] >= result.end
    engines.wait = lambda seconds: now.__setitem__(0, now[0] + 1)
    _Later.now = now
    used = time.process_time()
    done = sum(
        1
        for _ in Placer(
            engines, iter([piece(str(number), (1, 1, 1, 2, 4)[number % 5], number % 4) for number in range(pieces)])
        ).results()
    )
    return (time.process_time() - used) / done


class _Later(Result):
    """A result that is ready after a few turns."""

    def __init__(self, engines, engine, one):
        super().__init__(engines, engine, one)
        self.end = self.now[0] + 1 + int(one.student) * 7 % 16
