"""The probe of a schedule that the notebook defines as a list."""

from grader.probes.gap_code import GapCode
from grader.sandbox.rank import StudentMistake
from grader.units.model_parallel.probes.probe_schedules import LONGEST, texts


def puzzle(rank, ranks, source, case):
    """Return the schedule that the notebook's gap assigns to case["name"]: {"schedules": [schedule]}."""
    found = getattr(GapCode(source).run(), case["name"])
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, (list, tuple)) for one in found):
        raise StudentMistake(
            f"`{case['name']}` is {found!r:.60}: write a list of operations for each stage, [[...], [...], ...]"
        )
    return {"schedules": [[texts(one, f"stage {stage}") for stage, one in enumerate(found[:LONGEST])]]}
