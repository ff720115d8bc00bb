"""A score doesn't depend on how busy the machine is: the same twenty submissions get the same on an idle and on a
loaded one.

`make bench ARGS=same_scores` grades them twenty times on each; the suite once, to be quick.
"""

import contextlib
import os
import queue
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sandbox_runs
from loaded import LIBRARIES
from test_hostile import RIGHT, SUBMISSIONS, WRONG

from answers.known import of_unit
from grader import judging, run_probes
from grader.course import UNITS
from grader.exercises import solved
from grader.instructors.grade import work
from grader.sandbox.forkserver import Forked

pytestmark = [pytest.mark.thorough, sandbox_runs.needs_strong]

AT_ONCE = 3  # submissions: most of their time, those that deadlock or are ended only wait
REPETITIONS = int(os.environ.get("HANDSON_REPETITIONS", 1))
SOLUTIONS = [
    ("multi_gpu", "pytorch", "sampler"),
    ("multi_gpu", "pytorch", "step"),
    ("multi_gpu", "pytorch", "run"),
    ("multi_gpu", "chainer", "updater"),
    ("multi_node", "chainer", "evaluator"),
    ("single_gpu", "", "smallest_batch"),
]
MUTANTS = [
    ("multi_gpu", "pytorch", "no seed"),
    ("multi_node", "pytorch", "averaged by hand, but after the step"),
    ("multi_node", "pytorch", "only rank 0 adds up over all ranks"),
    ("multi_gpu", "chainer", "the whole data set for each GPU"),
    ("multi_node", "chainer", "on rank 0 only"),
    ("multi_gpu", "", "a jump"),
]
HOSTILE = {
    "optimizer": [
        "endless loop",
        "memory flood",
        "os._exit",
        "fork bomb",
        "a busy thread beside a wrong answer",
        "warnings",
    ],
    "step": ["deadlock in a receive", "one rank leaves"],
}


def submissions():
    """(unit, track, the gap whose checks are run, what it is filled with: {gap: code}): scripts of both tracks, and
    notebooks."""
    found = [(*solution, {}) for solution in SOLUTIONS]
    for unit, track, name in MUTANTS:
        mistake = next(mistake for mistake in of_unit(unit, track)[0] if mistake.name == name)
        found.append((unit, track, mistake.of_check, {mistake.gap: mistake.code}))
    hostile = {one["name"]: one for one in SUBMISSIONS}
    for gap, names in HOSTILE.items():
        for name in names:
            answer = (RIGHT if hostile[name].get("right") else WRONG)[gap]
            code = f"{hostile[name]['code']}\n{answer}"
            found.append(("multi_gpu" if gap == "step" else "single_gpu", "pytorch", gap, {gap: code}))
    return found


def scores(servers):
    """(check, points) of each submission, each on a server that is free."""
    free = queue.SimpleQueue()
    for server in servers:
        free.put(server)

    def score(submission):
        unit, track, gap, filled = submission
        part = next(part for part in UNITS[unit] if part.track == track and gap in {check.gap for check in part.checks})
        text = solved(part.file, **filled)
        checks = sorted(part.checks, key=lambda check: check.gap != gap)
        only = replace(part, checks=tuple(checks[:2]))  # with another gap, which often shares its ranks
        server = free.get()
        verdicts = list(judging.judge(unit, (only,), lambda file: text, server, readable=work.readable(), seed=7))
        free.put(server)
        return unit, track, gap, filled, [(verdict.check, verdict.points) for verdict in verdicts]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(score, submissions()))


@contextlib.contextmanager
def load():
    """Processes that compute, one for each core, beside the ranks of several submissions."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


@pytest.fixture(scope="module", autouse=True)
def less_cpu_time():
    """A third of what there is for a class: stricter, and what never ends takes less long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_probes, "LIMITS", replace(run_probes.LIMITS, cpu_seconds=2))
        yield


@pytest.fixture(scope="module")
def servers(server, loaded):
    more = [Forked(LIBRARIES, loaded) for _ in range(AT_ONCE - 1)]
    yield [server, *more]
    for one in more:
        one.stop()


@pytest.fixture(scope="module")
def idle(servers):
    return scores(servers)


def test_there_are_twenty_and_each_gets_what_it_deserves(idle):
    assert len(idle) == 20
    full = [all(points for _, points in verdicts) for *_, verdicts in idle]
    assert full[:6] == [True] * 6 and not any(full[6:-3]) and full.count(True) == 7, "solutions, and what only warns"


@pytest.mark.parametrize("repetition", range(REPETITIONS))
def test_a_busy_machine_changes_no_score(servers, idle, repetition):
    assert repetition == 0 or scores(servers) == idle
    with load():
        assert scores(servers) == idle
