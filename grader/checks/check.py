"""What a check is made of. The tables in this folder hold nothing else; grader/judging.py applies them."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Criterion:
    """One thing that a gap's code must get right.

    judge(seen, case, expected) returns None, or what is wrong, in a sentence for the student; `seen` has the observations of every
    rank, `expected` what the oracle gave (None without one).
    """

    title: str
    points: float
    judge: Callable
    hint: str


@dataclass(frozen=True)
class Check:
    """How one gap is checked: the probe runs with each case, and every criterion must hold in each.

    whole: not a gap, but the file as a whole is probed, once all its gaps are filled.

    probe and oracle are named "module:function"; both get the case, the oracle runs without the student's code. A case is a
    dictionary: "ranks", how many processes (1 if absent), and whatever the probe wants; "unit" and "seed" are added to it, and what
    `given` makes of such a case. Where the gap is only read and never run, the probe is a function of the file's text and the case.
    """

    gap: str
    probe: str | Callable
    cases: tuple
    criteria: tuple
    oracle: str | None = None
    whole: bool = False
    given: Callable | None = None
