"""A score doesn't depend on how busy the machine is: the same twenty submissions get the same on an idle and on a loaded one.

HANDSON_REPETITIONS=10 python -m pytest tests/grader/test_same_scores.py grades them ten times on each.
"""

import contextlib
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import sandbox_runs
from test_hostile import RIGHT, SUBMISSIONS, WRONG

from grader.checks import UNITS
from grader.checks.judging import judge
from grader.grade import work
from grader.mutants import known, solved

pytestmark = sandbox_runs.needs_strong

REPETITIONS = int(os.environ.get("HANDSON_REPETITIONS", 1))
HOSTILE = {
    "optimizer": ["endless loop", "memory flood", "os._exit", "fork bomb", "a busy thread beside a wrong answer", "warnings"],
    "step": ["deadlock in a collective", "one rank leaves"],
}


def submissions():
    """(unit, gap, code): the right answer of every gap of a script for several ranks, wrong ones, and hostile ones."""
    found = [("multi_gpu", check.gap, None) for check in pytorch("multi_gpu").checks]
    mutants = known("multi_gpu", "pytorch")[0]
    found += [("multi_gpu", mutant["gap"], mutant["code"]) for mutant in mutants if mutant["gap"] in ("step", "replica", "split")][:5]
    hostile = {one["name"]: one for one in SUBMISSIONS}
    for gap, names in HOSTILE.items():
        for name in names:
            answer = (RIGHT if hostile[name].get("right") else WRONG)[gap]
            found.append(("multi_gpu" if gap == "step" else "single_gpu", gap, f"{hostile[name]['code']}\n{answer}"))
    return found


def pytorch(unit):
    return next(part for part in UNITS[unit] if part.track == "pytorch")


def scores(server):
    found = []
    for unit, gap, code in submissions():
        part = pytorch(unit)
        text = solved(part.file, **({gap: code} if code else {}))
        only = replace(part, checks=tuple(check for check in part.checks if check.gap == gap))
        verdicts = judge(unit, (only,), lambda file: text, server, readable=work.readable(), seed=7)
        found.append((unit, gap, code, [(verdict.check, verdict.points) for verdict in verdicts]))
    return found


@contextlib.contextmanager
def load():
    """Processes that compute, two for each core."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * os.cpu_count())]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def test_there_are_twenty():
    assert len(submissions()) == 20


@pytest.mark.parametrize("repetition", range(REPETITIONS))
def test_a_busy_machine_changes_no_score(server, repetition):
    idle = scores(server)
    with load():
        assert scores(server) == idle
    assert {sum(points for _, points in verdicts) > 0 for _, _, _, verdicts in idle} == {True, False}
