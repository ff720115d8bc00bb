"""The parts of a check. The units' tables of checks are built from them, and grader/judging.py applies them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from handson.errors import OneSentence


class CheckError(OneSentence, ValueError):
    """An error in a unit's table of checks."""


@dataclass(frozen=True)
class Criterion:
    """One requirement on a gap's code.

    judge(seen, case, expected) returns None if the code meets it, or otherwise a sentence for the student on the
    mistake. `seen`: the observations of each rank. `expected`: the oracle's values, or None without an oracle.

    id: short, stable and unique in its check. Known answers refer to it.

    title, hint: texts for students. They may be reworded at any time. A title is a statement that holds if the
    criterion passes.

    needs: the id of another criterion of the check, or "". This criterion earns points only if the other one passes,
    too. It is meant for properties that code has even if it does no work, such as equal parameters on all ranks.

    edge: whether this criterion is judged only in the cases that have an "edge". The other criteria of the check are
    then not judged in these cases, so that a requirement that no text mentions costs only its own points.
    """

    id: str
    title: str
    points: float
    judge: Callable
    hint: str
    needs: str = ""
    edge: bool = False

    def __post_init__(self):
        if not isinstance(self.points, (int, float)) or not 0 <= self.points < math.inf:
            raise CheckError(
                f"the criterion {self.id!r} (in grader/units or grader/checks) has points={self.points!r}, but it must"
                " be a number, 0 or more"
            )


@dataclass(frozen=True)
class Check:
    """The check of one gap: the probe runs with each case, and every criterion must hold in each case.

    whole: the probe runs the whole file instead of one gap, as soon as all its gaps are filled.

    probe, oracle: functions, written as "module:function". Both get the case. The oracle runs without student code.

    cases: dictionaries. "ranks" is the number of processes (1 if absent). The probe defines the other keys; those of
    the training scripts are "ranks" for several ranks, "ranks_per_node" for several nodes, and "workers" for one
    process with several devices. The grader adds "unit", "seed", and the dictionary that `given` returns for the case.

    observed: observed(case) is the form of the value that the probe returns on one rank (grader.checks.forms).

    runner: runner(cases, source, server, readable) runs the gap in place of grader.run_probes.alone, and returns the
    same: for a check that needs more than the ranks of one sandbox.

    contest: whether the runner compares the code with a reference solution (`measured` of its Outcome), so that the
    unit has a leaderboard.
    """

    gap: str
    probe: str
    cases: tuple
    criteria: tuple
    oracle: str | None = None
    whole: bool = False
    given: Callable | None = None
    observed: Callable | None = None
    runner: Callable | None = None
    contest: bool = False


def starred(checks, *gaps):
    """Return these checks without points for `gaps`, which are in sections with a star. Default: all gaps."""
    return tuple(
        replace(check, criteria=tuple(replace(criterion, points=0) for criterion in check.criteria))
        if not gaps or check.gap in gaps
        else check
        for check in checks
    )
