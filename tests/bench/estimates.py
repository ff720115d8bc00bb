"""How long grading takes, predicted before it starts and measured: a class of 100 with notebooks and job scripts, right and wrong ones, on two engines.

The first prediction is that of a machine that has not graded anything; the second follows from the first grading. Both also with the
slowdown that the grading then had by the CPU time of its pieces, as the load of a busy machine changes meanwhile.
"""

import os
import time

from grader.course import UNITS
from grader.instructors.grade import estimate, remembered
from grader.instructors.grade.grading import grade
from grader.instructors.known_answers import of_part, solved
from grader.instructors.release import notebook
from tests.grader.test_placing import Engines, Result, piece

STUDENTS, ENGINES = 100, 2
CHOSEN = ("single_gpu", "multi_gpu", "multi_node", "profiling", "scaling")
CLUSTERS = (2, 32, 512)


def measure(folder):
    """Rows (what, value, target)."""
    _hand_in(folder / "handed_in")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    for source in ("the course's numbers", "what is remembered"):
        yield from _graded(folder, source)
    for engines in CLUSTERS:
        yield f"ms of CPU time in which the grader gives a piece to one of {engines} engines", f"{1000 * _placing(engines):.2f}", ""


def _hand_in(folder):
    """Students with a right answer or one of six wrong ones in each file."""
    for unit, part in [(unit, part) for unit in CHOSEN for part in UNITS[unit] if not part.file.endswith(".py")]:
        texts = [solved(part.file), *(solved(part.file, **{wrong["gap"]: wrong["code"]}) for wrong in of_part(unit, part)[0][:6])]
        texts = [notebook(text) for text in texts] if part.file.endswith(".ipynb") else texts
        for number in range(STUDENTS):
            path = folder / f"student{number:03}" / part.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[number % len(texts)])


def _graded(folder, source):
    heard, before = {}, estimate.remember

    def remember(took, jobs, hosts, seconds, used, spun, spin):
        known = remembered.read(spin)
        factor, _ = remembered.slowdown(took, known["overhead"], spun)
        heard.update(took=seconds, slowdown=(spun, factor), predicted=[estimate.seconds_of(jobs, hosts, known, slow) for slow in (spun, factor)])
        before(took, jobs, hosts, seconds, used, spun, spin)

    estimate.remember = remember
    try:
        began = time.strftime("%H%M%S")
        grade(folder / "handed_in", folder / f"graded{began}{source[:3]}", engines=ENGINES, units=CHOSEN, say=lambda line: None)
    finally:
        estimate.remember = before
    for when, slowdown, predicted in zip(("at its start", "that it had"), heard["slowdown"], heard["predicted"]):
        what = f"seconds to grade {STUDENTS} students, by {source}, slowdown {slowdown:.1f} {when}"
        yield what, f"{heard['took']:.0f}", f"predicted {predicted:.0f}, {predicted / heard['took'] - 1:+.0%}; within 20 %"


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
    done = sum(1 for _ in Placer(engines, iter([piece(str(number), (1, 1, 1, 2, 4)[number % 5], number % 4) for number in range(pieces)])).results())
    return (time.process_time() - used) / done


class _Later(Result):
    """A result that is ready after a few turns."""

    def __init__(self, engines, engine, one):
        super().__init__(engines, engine, one)
        self.end = self.now[0] + 1 + int(one.student) * 7 % 16
