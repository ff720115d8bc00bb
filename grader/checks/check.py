"""The parts of a check. The units' tables consist of these; grader/judging.py applies them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from handson.errors import OneSentence


class CheckError(OneSentence, ValueError):
    """A sentence on what is wrong in a unit's table of checks."""


@dataclass(frozen=True)
class Criterion:
    """One thing that a gap's code must get right.

    judge(seen, case, expected) returns None if it is right, else a sentence for the student that says what is wrong.
    `seen`: the observations of each rank; `expected`: the oracle's values, or None without an oracle.

    id: short and stable, unique in its check; known answers name it. title, hint: what students read, which may be
    reworded at any time.

    needs: the id of another criterion of the check, or "". Without it passing, too, this one earns nothing: for a
    property that code has which does no work at all, such as equal parameters on all ranks.

    edge: whether it is judged in the cases that have an "edge", and in these alone; then the other criteria of the
    check are not judged there. For what no text asks for: it must not cost the points of all else.
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
    """How one gap is checked: the probe runs with each case, and every criterion must hold in each case.

    whole: the probe runs the whole file, not one gap, once all its gaps are filled.

    probe and oracle are named "module:function". Both get the case; the oracle runs without the student's code. A case
    is a dictionary: "ranks" is the number of processes (1 if absent), and the probe defines the other keys. (Those of
    the training scripts: with "ranks" a script has several ranks, with "ranks_per_node" several nodes, and with
    "workers" one process with several devices.) The grader adds "unit" and "seed", and the dictionary that `given`
    returns for this case.

    runner(cases, source, server, readable) runs the gap in place of grader.run_probes.alone, and returns the same: for
    a check that needs more than the ranks of one sandbox.

    observed(case) is the form of what the probe returns on one rank (grader.checks.forms).
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


def starred(checks, *gaps):
    """These checks, without points for the `gaps` in sections with a star; by default for all of them."""
    return tuple(
        replace(check, criteria=tuple(replace(criterion, points=0) for criterion in check.criteria))
        if not gaps or check.gap in gaps
        else check
        for check in checks
    )
